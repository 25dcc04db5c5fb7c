// From the keys of [training] to a loader.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/datasets.h"
#include "data/batch_loader.h"
#include "data/lanes.h"
#include "data/packer.h"
#include "data/registry.h"

namespace titan::data {
namespace {

std::vector<config::MixEntry> mix_of(const DataOptions& options) {
  if (options.dataset_mix.empty()) return {{.kind = options.dataset, .path = options.dataset_path.string()}};
  std::vector<config::MixEntry> entries;
  for (const std::string& text : options.dataset_mix) entries.push_back(config::parse_mix_entry(text));
  return entries;
}

std::unique_ptr<RowSource> make_elastic(const DataOptions& options, std::shared_ptr<const Tokenizer> tokenizer) {
  std::vector<std::shared_ptr<const TokenSource>> sources;
  std::vector<double> weights;
  for (const config::MixEntry& entry : mix_of(options)) {
    sources.push_back(open_tokens(entry.kind, entry.path, tokenizer, options.seq_len));
    weights.push_back(entry.weight);
  }
  const std::int64_t own_lanes = options.local_batch_size * options.accumulation_steps;
  return std::make_unique<Lanes>(std::move(sources), std::move(weights),
                                 Lanes::Options{.seq_len = options.seq_len,
                                                .num_lanes = own_lanes * options.dp_size,
                                                .first_lane = own_lanes * options.dp_rank,
                                                .own_lanes = own_lanes,
                                                .local_batch_size = options.local_batch_size,
                                                .seed = static_cast<std::uint64_t>(options.seed),
                                                .on_bad_record = parse_on_bad_record(options.on_bad_record)});
}

std::unique_ptr<RowSource> make_torchtitan(const DataOptions& options, std::shared_ptr<const Tokenizer> tokenizer) {
  return std::make_unique<Packer>(
      open_tokens(options.dataset, options.dataset_path, std::move(tokenizer), options.seq_len),
      Packer::Options{.dataset_name = options.dataset,
                      .seq_len = options.seq_len,
                      .dp_rank = options.dp_rank,
                      .dp_size = options.dp_size,
                      .infinite = options.infinite,
                      .on_bad_record = parse_on_bad_record(options.on_bad_record)});
}

}  // namespace

std::string resolve_data_order(const DataOptions& options) {
  std::string order = options.data_order;
  if (order == "auto") {
    const bool torchtitans = config::lower_case(options.dataset).starts_with("c4") && options.dataset_mix.empty();
    order = torchtitans ? "torchtitan" : "elastic";
  }
  if (order != "torchtitan" && order != "elastic") {
    throw ConfigError("training.data_order: expected one of auto, torchtitan, elastic; found \"" + order + "\"");
  }
  if (order == "torchtitan" && !options.dataset_mix.empty()) {
    throw ConfigError(
        "training.dataset_mix needs the elastic order: TorchTitan's has no mixtures. Leave out "
        "training.data_order");
  }
  TITAN_CHECK(order == "torchtitan" || options.infinite, "the elastic order has no end");
  return order;
}

std::unique_ptr<BatchSource> make_batch_source(const DataOptions& options, std::shared_ptr<const Tokenizer> tokenizer) {
  auto rows = resolve_data_order(options) == "elastic" ? make_elastic(options, std::move(tokenizer))
                                                       : make_torchtitan(options, std::move(tokenizer));
  return make_batch_loader(std::move(rows), {.local_batch_size = options.local_batch_size,
                                             .seq_len = options.seq_len,
                                             .pin_memory = options.pin_memory,
                                             .report_bad_records = options.on_bad_record == "skip",
                                             .sample_log = options.sample_log});
}

}  // namespace titan::data
