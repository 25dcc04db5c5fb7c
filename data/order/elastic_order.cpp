#include "data/order/elastic_order.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "data/io/hash.h"
#include "data/order/permutation.h"
#include "data/order/saved_order.h"
#include "data/order/write_row.h"

namespace titan::data {
namespace {

std::string list_of(const std::vector<std::int64_t>& numbers) {
  std::vector<std::string> texts;
  for (const std::int64_t number : numbers) texts.push_back(with_thousands(number));
  return join(texts, " + ");
}

[[noreturn]] void cannot_continue(const std::string& why) {
  throw DataError("cannot continue at the saved position of the data: " + why +
                  ". Undo the change, or set checkpoint.exclude_from_loading = [\"dataloader\"] to start the data from "
                  "the beginning");
}

class ElasticPosition final : public RowPosition {
 public:
  explicit ElasticPosition(ElasticState state) : state_(std::move(state)) {}
  std::vector<StateEntry> entries(std::int64_t /*num_batches*/) const override { return to_entries(state_); }

 private:
  ElasticState state_;
};

}  // namespace

ElasticOrder::ElasticOrder(std::vector<std::shared_ptr<const TokenSource>> sources, std::vector<double> weights,
                           Options options)
    : sources_(std::move(sources)), mixture_(weights, options.seed), options_(options) {
  TITAN_CHECK(weights.size() == sources_.size(), "one weight for each source");
  TITAN_CHECK(options_.seq_len > 0 && options_.own_lanes > 0 && options_.first_lane >= 0 &&
                  options_.first_lane + options_.own_lanes <= options_.num_lanes &&
                  options_.own_lanes % options_.local_batch_size == 0,
              "lanes " + std::to_string(options_.first_lane) + " + " + std::to_string(options_.own_lanes) + " of " +
                  std::to_string(options_.num_lanes));
  for (auto& source : sources_) {
    saved_items_.push_back(source->num_items());
    source = with_items(std::move(source), options_.num_lanes);
  }
  lanes_.resize(static_cast<std::size_t>(options_.own_lanes));
  for (Lane& lane : lanes_) lane.streams.resize(sources_.size());
  window_.resize(static_cast<std::size_t>(options_.seq_len) + 1);
}

bool ElasticOrder::next_row(const RowSpans& row) {
  Lane& lane = lanes_[next_lane_];
  const std::int64_t lane_number = options_.first_lane + static_cast<std::int64_t>(next_lane_);
  sample_id_.sample = lane.windows * options_.num_lanes + lane_number;
  const std::size_t source = mixture_.source_of(sample_id_.sample);
  sample_id_.source = static_cast<std::int64_t>(source);
  fill_window(lane_number, source);
  write_row(std::span<const std::int32_t>(window_), row);
  ++lane.windows;
  next_lane_ = (next_lane_ + 1) % lanes_.size();
  return true;
}

void ElasticOrder::fill_window(std::int64_t lane, std::size_t source) {
  Stream& stream = lanes_[next_lane_].streams[source];
  if (stream.items > 0 && !stream.run.owner) load(stream, lane, source);
  for (std::size_t filled = 0; filled < window_.size();) {
    if (stream.used == stream.run.size()) begin_next_item(stream, lane, source);
    if (filled == 0) {
      sample_id_.item = item_of(lane, source, stream.items - 1);
      sample_id_.token = static_cast<std::int64_t>(stream.used);
    }
    const std::size_t count = std::min(window_.size() - filled, stream.run.size() - stream.used);
    std::copy_n(stream.run.owner->begin() + static_cast<std::ptrdiff_t>(stream.run.begin + stream.used), count,
                window_.begin() + static_cast<std::ptrdiff_t>(filled));
    filled += count;
    stream.used += count;
  }
}

std::int64_t ElasticOrder::item_of(std::int64_t lane, std::size_t source, std::int64_t count) const {
  const std::int64_t items = sources_[source]->num_items();
  const std::int64_t ordinal = count * options_.num_lanes + lane;
  const auto pass = static_cast<std::uint64_t>(ordinal / items);
  const std::uint64_t key = mix_bits(mix_bits(mix_bits(options_.seed) ^ source) ^ pass);
  return Permutation(items, key)(ordinal % items);
}

// Moves `stream` to its next item that has tokens.
void ElasticOrder::begin_next_item(Stream& stream, std::int64_t lane, std::size_t source) {
  const std::int64_t items = sources_[source]->num_items();
  for (std::int64_t tried = 0; tried <= items; ++tried) {
    stream.run =
        read_item(*sources_[source], item_of(lane, source, stream.items), options_.on_bad_record, bad_records_);
    ++stream.items;
    stream.used = 0;
    if (stream.run.size() > 0) return;
  }
  throw DataError(sources_[source]->name() + ": " + with_thousands(items + 1) +
                  " items in a row gave no tokens at all. Is everything in it empty or unusable?");
}

// Loads the tokens of the stream's current item after load_state().
void ElasticOrder::load(Stream& stream, std::int64_t lane, std::size_t source) {
  const std::int64_t item = item_of(lane, source, stream.items - 1);
  stream.run = read_item(*sources_[source], item, options_.on_bad_record, bad_records_);
  if (stream.used > stream.run.size()) {
    cannot_continue("it stands after token " + std::to_string(stream.used) + " of item " + std::to_string(item) +
                    " of " + sources_[source]->name() + ", which has " + std::to_string(stream.run.size()) +
                    ": the data or the tokenizer changed");
  }
}

std::shared_ptr<const RowPosition> ElasticOrder::position() const {
  ElasticState state{static_cast<std::int64_t>(options_.seed), options_.num_lanes, saved_items_, {}};
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    LaneState lane{options_.first_lane + static_cast<std::int64_t>(i), lanes_[i].windows, {}};
    for (const Stream& stream : lanes_[i].streams) {
      lane.cursors.push_back(stream.items);
      lane.cursors.push_back(static_cast<std::int64_t>(stream.used));
    }
    state.lanes.push_back(std::move(lane));
  }
  return std::make_shared<ElasticPosition>(std::move(state));
}

void ElasticOrder::check_state(const Values& saved) const { check_order(saved, DataOrder::kElastic); }

void ElasticOrder::check_same_data(const ElasticState& state) const {
  const auto differ = [](const std::string& what, const std::string& saved, const std::string& now) {
    if (saved != now) cannot_continue(what + " was " + saved + ", it is " + now + " now");
  };
  differ("the global batch size (the number of lanes)", std::to_string(state.num_lanes),
         std::to_string(options_.num_lanes));
  differ("the seed of the order (debug.seed, 0 when it is not set)", std::to_string(state.seed),
         std::to_string(static_cast<std::int64_t>(options_.seed)));
  differ("the number of documents or windows of each dataset", list_of(state.num_items), list_of(saved_items_));
}

std::int64_t ElasticOrder::load_state(const Values& saved) {
  check_state(saved);
  const ElasticState state = parse_elastic_state(saved, options_.first_lane, options_.own_lanes);
  check_same_data(state);
  if (state.lanes.size() != lanes_.size()) {
    cannot_continue("it has " + std::to_string(state.lanes.size()) + " lanes of this rank's " +
                    std::to_string(lanes_.size()));
  }
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    const auto& [number, windows, cursors] = state.lanes[i];
    const bool whole_steps = windows >= 0 && windows == state.lanes[0].windows;
    if (cursors.size() != 2 * sources_.size() || !whole_steps ||
        std::ranges::any_of(cursors, [](std::int64_t cursor) { return cursor < 0; })) {
      cannot_continue("the saved position of lane " + std::to_string(number) + " is damaged");
    }
    lanes_[i].windows = windows;
    for (std::size_t k = 0; k < sources_.size(); ++k) {
      lanes_[i].streams[k] = {.items = cursors[2 * k], .used = static_cast<std::size_t>(cursors[2 * k + 1]), .run = {}};
    }
  }
  next_lane_ = 0;
  return lanes_[0].windows * (options_.own_lanes / options_.local_batch_size);
}

void ElasticOrder::restart() {
  for (Lane& lane : lanes_) lane = {.windows = 0, .streams = std::vector<Stream>(sources_.size())};
  next_lane_ = 0;
}

}  // namespace titan::data
