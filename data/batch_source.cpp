// From the keys of [training] to a loader.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "config/keys/datasets.h"
#include "data/batch_loader.h"
#include "data/order/elastic_order.h"
#include "data/order/torchtitan_order.h"
#include "data/registry.h"

namespace titan::data {
namespace {

std::vector<config::MixEntry> mix_of(const DataOptions& options) {
  if (options.dataset_mix.empty()) return {{.kind = options.dataset, .path = options.dataset_path.string()}};
  std::vector<config::MixEntry> entries;
  for (const std::string& text : options.dataset_mix) entries.push_back(config::parse_mix_entry(text));
  return entries;
}

struct Opened {
  std::shared_ptr<const TokenSource> tokens;
  std::string description;  // of BatchSource
};

Opened open(const config::MixEntry& entry, const DataOptions& options, std::shared_ptr<const Tokenizer> tokenizer) {
  auto tokens = open_tokens(entry.kind, entry.path, std::move(tokenizer), options.seq_len);
  const bool is_indexed = config::lower_case(entry.kind) == "indexed";
  std::string description =
      entry.kind + " " + entry.path + " has " + counted(tokens->num_items(), is_indexed ? "window" : "document");
  if (is_indexed) description += " of " + with_thousands(options.seq_len + 1) + " tokens";
  return {std::move(tokens), std::move(description)};
}

// Rows, and what they are made of.
using Rows = std::pair<std::unique_ptr<RowSource>, std::string>;

Rows make_elastic(const DataOptions& options, const std::shared_ptr<const Tokenizer>& tokenizer) {
  std::vector<std::shared_ptr<const TokenSource>> sources;
  std::vector<double> weights;
  std::vector<std::string> descriptions;
  for (const config::MixEntry& entry : mix_of(options)) {
    Opened opened = open(entry, options, tokenizer);
    sources.push_back(std::move(opened.tokens));
    descriptions.push_back(std::move(opened.description));
    weights.push_back(entry.weight);
  }
  const std::int64_t own_lanes = options.local_batch_size * options.accumulation_steps;
  return {std::make_unique<ElasticOrder>(
              std::move(sources), std::move(weights),
              ElasticOrder::Options{.seq_len = options.seq_len,
                                    .num_lanes = own_lanes * options.dp_size,
                                    .first_lane = own_lanes * options.dp_rank,
                                    .own_lanes = own_lanes,
                                    .local_batch_size = options.local_batch_size,
                                    .seed = static_cast<std::uint64_t>(options.seed),
                                    .on_bad_record = parse_on_bad_record(options.on_bad_record)}),
          join(descriptions, ", ")};
}

Rows make_torchtitan(const DataOptions& options, const std::shared_ptr<const Tokenizer>& tokenizer) {
  Opened opened = open(mix_of(options).front(), options, tokenizer);
  return {std::make_unique<TorchTitanOrder>(
              std::move(opened.tokens),
              TorchTitanOrder::Options{.dataset_name = options.dataset,
                                       .seq_len = options.seq_len,
                                       .dp_rank = options.dp_rank,
                                       .dp_size = options.dp_size,
                                       .infinite = options.infinite,
                                       .on_bad_record = parse_on_bad_record(options.on_bad_record)}),
          std::move(opened.description)};
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
  auto [rows, description] =
      resolve_data_order(options) == "elastic" ? make_elastic(options, tokenizer) : make_torchtitan(options, tokenizer);
  return make_batch_loader(std::move(rows), {.local_batch_size = options.local_batch_size,
                                             .seq_len = options.seq_len,
                                             .pin_memory = options.pin_memory,
                                             .report_bad_records = options.on_bad_record == "skip",
                                             .sample_log = options.sample_log,
                                             .description = std::move(description)});
}

}  // namespace titan::data
