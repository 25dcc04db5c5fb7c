// Elastic order: the sequence of global batches depends only on the data, the seed, the step and the global batch size.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/order/elastic_state.h"
#include "data/order/mixture.h"
#include "data/order/row_source.h"
#include "data/sources/token_source.h"

namespace titan::data {

// A step's global batch has one window from each of L lanes, L = training.global_batch_size; row l comes from lane l.
// Sample number s = step * L + l. Rank r of W draws for lanes [r * L / W, (r + 1) * L / W), in order, microbatch after
// microbatch. So a lane's windows do not depend on the rank that draws them, and its position can move to another rank.
//
// Each lane reads its share of every source: item number o = k * L + l of an endless list, k = 0, 1, ...; item o is
// item shuffle(seed, source, o / N)(o % N) of a source of N items. So in each pass (o / N) every item is read once, by
// one lane. A lane cuts the tokens of its items into windows of seq_len + 1 without overlap. Mixture chooses the source
// of each sample. A lane's position is its number of windows and, for each source, the number of items begun and the
// number of tokens used of the last one.
class ElasticOrder final : public RowSource {
 public:
  struct Options {
    std::int64_t seq_len = 0;
    std::int64_t num_lanes = 1;
    std::int64_t first_lane = 0;  // first lane of this rank
    std::int64_t own_lanes = 1;
    std::int64_t local_batch_size = 1;  // divides own_lanes
    std::uint64_t seed = 0;
    OnBadRecord on_bad_record = OnBadRecord::kError;
  };

  // Cuts the items of a source with fewer items than lanes into parts (with_items). Throws ConfigError for a weight
  // that is not positive.
  ElasticOrder(std::vector<std::shared_ptr<const TokenSource>> sources, std::vector<double> weights, Options options);

  bool next_row(const RowSpans& row) override;
  SampleId sample_id() const override { return sample_id_; }
  std::shared_ptr<const RowPosition> position() const override;
  std::int64_t load_state(const Values& saved) override;
  void restart() override;
  void check_state(const Values& saved) const override;
  std::int64_t bad_records() const override { return bad_records_; }

 private:
  // A lane's share of one source.
  struct Stream {
    std::int64_t items = 0;  // items begun
    std::size_t used = 0;    // tokens used of the last one
    TokenRun run;            // tokens of the last one; null until they are needed
  };
  struct Lane {
    std::int64_t windows = 0;
    std::vector<Stream> streams;
  };

  void fill_window(std::int64_t lane, std::size_t source);
  std::int64_t item_of(std::int64_t lane, std::size_t source, std::int64_t count) const;
  void begin_next_item(Stream& stream, std::int64_t lane, std::size_t source);
  void load(Stream& stream, std::int64_t lane, std::size_t source);
  void check_same_data(const ElasticState& state) const;

  std::vector<std::shared_ptr<const TokenSource>> sources_;
  std::vector<std::int64_t> saved_items_;  // items of the sources before they are cut into parts
  Mixture mixture_;
  Options options_;
  std::vector<Lane> lanes_;  // this rank's
  std::size_t next_lane_ = 0;
  std::vector<std::int32_t> window_;
  SampleId sample_id_;
  std::int64_t bad_records_ = 0;
};

}  // namespace titan::data
