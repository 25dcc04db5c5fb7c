#include "data/open.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "config/keys/datasets.h"
#include "data/batch_loader.h"
#include "data/dataset_kinds.h"
#include "data/order/elastic_order.h"
#include "data/order/saved_order.h"
#include "data/order/torchtitan_order.h"

namespace titan::data {
namespace {

DataOrder resolve_order(const DataOptions& options) {
  const std::string order = config::data_order(options.data_order, options.dataset, !options.dataset_mix.empty());
  if (order != "torchtitan" && order != "elastic") {
    throw ConfigError("training.data_order: expected one of auto, torchtitan, elastic; found \"" + order + "\"",
                      {"training.data_order"});
  }
  if (order == "torchtitan" && !options.dataset_mix.empty()) {
    throw ConfigError(
        "training.dataset_mix needs the elastic order: TorchTitan's has no mixtures. Leave out "
        "training.data_order",
        {"training.dataset_mix", "training.data_order"});
  }
  TITAN_CHECK(order == "torchtitan" || options.infinite, "the elastic order has no end");
  return order == "elastic" ? DataOrder::kElastic : DataOrder::kTorchTitan;
}

std::vector<config::MixEntry> mix_of(const DataOptions& options) {
  if (options.dataset_mix.empty()) return {{.kind = options.dataset, .path = options.dataset_path.string()}};
  std::vector<config::MixEntry> entries;
  for (const std::string& text : options.dataset_mix) entries.push_back(config::parse_mix_entry(text));
  return entries;
}

struct OpenedDataset {
  std::shared_ptr<const TokenSource> tokens;
  std::string description;  // for BatchSource
};

OpenedDataset open_entry(const config::MixEntry& entry, const DataOptions& options,
                         std::shared_ptr<const Tokenizer> tokenizer) {
  ChatDataset chat = options.chat;
  chat.on_bad_record = options.on_bad_record;
  auto tokens = open_tokens(entry.kind, entry.path, std::move(tokenizer), options.seq_len, options.text_key, chat);
  std::string description = entry.kind + " " + entry.path + " has " + tokens->contents();
  return {std::move(tokens), std::move(description)};
}

struct OpenedRows {
  std::unique_ptr<RowSource> rows;
  std::string description;  // for BatchSource
  bool has_documents;       // for LoaderOptions
};

// Warns of conversations that one step of `rows` reads more than once: the batch suits larger data.
void warn_of_small_packs(const std::vector<std::shared_ptr<const TokenSource>>& sources,
                         const std::vector<double>& weights, const std::vector<std::string>& descriptions,
                         std::int64_t rows) {
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const double times = static_cast<double>(rows) * weights[i] / all / static_cast<double>(sources[i]->num_items());
    if (!sources[i]->holds_packs() || times < 2 || !speaks_for_all()) continue;
    spdlog::warn("each step reads all of these rows {:.0f} times: {}. Lower training.global_batch_size, or add data",
                 times, descriptions[i]);
  }
}

OpenedRows open_elastic(const DataOptions& options, OnBadRecord on_bad_record,
                        const std::shared_ptr<const Tokenizer>& tokenizer) {
  std::vector<std::shared_ptr<const TokenSource>> sources;
  std::vector<double> weights;
  std::vector<std::string> descriptions;
  for (const config::MixEntry& entry : mix_of(options)) {
    OpenedDataset opened = open_entry(entry, options, tokenizer);
    sources.push_back(std::move(opened.tokens));
    descriptions.push_back(std::move(opened.description));
    weights.push_back(entry.weight);
  }
  const std::int64_t own_lanes = options.local_batch_size * options.accumulation_steps;
  const ElasticOrder::Options order{.seq_len = options.seq_len,
                                    .num_lanes = own_lanes * options.dp_size,
                                    .first_lane = own_lanes * options.dp_rank,
                                    .own_lanes = own_lanes,
                                    .local_batch_size = options.local_batch_size,
                                    .seed = static_cast<std::uint64_t>(options.seed),
                                    .on_bad_record = on_bad_record};
  warn_of_small_packs(sources, weights, descriptions, order.num_lanes);
  const bool has_documents = std::ranges::any_of(sources, [](const auto& source) { return source->holds_packs(); });
  return {std::make_unique<ElasticOrder>(std::move(sources), std::move(weights), order), join(descriptions, ", "),
          has_documents};
}

OpenedRows open_torchtitan(const DataOptions& options, OnBadRecord on_bad_record,
                           const std::shared_ptr<const Tokenizer>& tokenizer) {
  OpenedDataset opened = open_entry(mix_of(options).front(), options, tokenizer);
  const TorchTitanOrder::Options order{.dataset_name = options.dataset,
                                       .seq_len = options.seq_len,
                                       .rank = {options.dp_rank, options.dp_size},
                                       .local_batch_size = options.local_batch_size,
                                       .infinite = options.infinite,
                                       .on_bad_record = on_bad_record};
  const bool has_documents = opened.tokens->holds_packs();
  return {std::make_unique<TorchTitanOrder>(std::move(opened.tokens), order), std::move(opened.description),
          has_documents};
}

// True if the conversations of this data count alike in the loss. Throws ConfigError for a mixture with other data, of
// which nothing says what counts as much as a conversation.
bool weighs_samples(const DataOptions& options) {
  if (options.chat.loss_weight != "sample") return false;
  const auto entries = mix_of(options);
  const auto is_chat = [](const config::MixEntry& entry) { return config::lower_case(entry.kind) == "chat"; };
  if (std::ranges::none_of(entries, is_chat)) return false;
  for (const config::MixEntry& entry : entries) {
    if (is_chat(entry)) continue;
    throw ConfigError("chat.loss_weight = \"sample\" makes conversations count alike, and " + entry.kind + " " +
                          entry.path + " has none; leave the key out, or mix datasets of kind chat alone",
                      {"chat.loss_weight", "training.dataset_mix"});
  }
  return true;
}

}  // namespace

std::unique_ptr<BatchSource> make_batch_source(const DataOptions& options, std::shared_ptr<const Tokenizer> tokenizer) {
  const DataOrder order = resolve_order(options);
  const OnBadRecord on_bad_record = parse_on_bad_record(options.on_bad_record);
  auto [rows, description, has_documents] = order == DataOrder::kElastic
                                                ? open_elastic(options, on_bad_record, tokenizer)
                                                : open_torchtitan(options, on_bad_record, tokenizer);
  return make_batch_loader(std::move(rows), {.local_batch_size = options.local_batch_size,
                                             .seq_len = options.seq_len,
                                             .pin_memory = options.pin_memory,
                                             .has_documents = has_documents,
                                             .weighs_samples = weighs_samples(options),
                                             .report_bad_records = on_bad_record == OnBadRecord::kSkip,
                                             .sample_log = options.sample_log,
                                             .description = std::move(description)});
}

}  // namespace titan::data
