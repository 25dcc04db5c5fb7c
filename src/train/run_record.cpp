#include "train/run_record.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/torchtitan_keys.h"
#include "config/keys/changes.h"

namespace titan::train {
namespace {

constexpr const char* kTokenizerKey = "model.hf_assets_path";

config::FlatConfig flat_config(const Value& saved) {
  config::FlatConfig flat;
  const std::string what = std::string(checkpoint::kRunKey) + ".config";
  if (const Value* found = saved.as_dict(checkpoint::kRunKey).find("config")) {
    for (const auto& [key, value] : found->as_dict(what).items) flat[key.as_string(what)] = value.as_string(what);
  }
  return flat;
}

std::string describe(const config::Change& change) {
  return change.key + " was " + change.saved + ", is " + change.now;
}

// A folder that moved is the same tokenizer; another tokenizer in the same folder is a change.
void judge_tokenizer(std::vector<config::Change>& changes, const Value& saved, const std::string& now,
                     const std::string& path) {
  const Value* found = saved.as_dict(checkpoint::kRunKey).find("tokenizer");
  if (!found) return;
  const bool is_same = found->as_string("titan.run.tokenizer") == now;
  const auto change = std::ranges::find(changes, kTokenizerKey, &config::Change::key);
  if (change != changes.end()) {
    if (is_same) change->effect = config::Effect::kTraining;
  } else if (!is_same) {
    changes.push_back({kTokenizerKey, "another tokenizer", "\"" + path + "\"", config::Effect::kModel});
  }
}

// A folder that moved is the same data; other files under the same path are a change.
void judge_data(std::vector<config::Change>& changes, const Value& saved, const DataFacts& now,
                const config::Training& training) {
  const Value* found = saved.as_dict(checkpoint::kRunKey).find("files");
  if (!found || now.files.empty()) return;
  const std::string different = now.differences(found->as_string("titan.run.files"), now.files);
  const char* key = training.dataset_mix.empty() ? "training.dataset_path" : "training.dataset_mix";
  const auto change = std::ranges::find(changes, key, &config::Change::key);
  if (change != changes.end()) {
    if (different.empty() && training.dataset_mix.empty()) change->effect = config::Effect::kTraining;
  } else if (!different.empty()) {
    changes.push_back({key, "other data", "changed: " + different, config::Effect::kData});
  }
}

}  // namespace

Value RunRecord::value() const {
  std::vector<std::pair<Value, Value>> keys;
  for (const auto& [key, value] : config::flatten(config_)) keys.emplace_back(key, value);
  std::vector<std::pair<Value, Value>> items = {{"config", Value::dict(std::move(keys))}, {"tokenizer", tokenizer_}};
  if (!data_.files.empty()) items.emplace_back("files", data_.files);
  return Value::dict(std::move(items));
}

void RunRecord::check(const Value& saved) const {
  auto changes = config::find_changes(flat_config(saved), config_);
  judge_tokenizer(changes, saved, tokenizer_, config_.model.hf_assets_path);
  judge_data(changes, saved, data_, config_.training);
  const bool loads_data = std::ranges::count(config_.checkpoint.exclude_from_loading, "dataloader") == 0;
  std::vector<std::string> listed, refused, refused_keys;
  for (const auto& change : changes) {
    const bool is_other_run =
        change.effect == config::Effect::kModel || (change.effect == config::Effect::kData && loads_data);
    const bool allowed = std::ranges::count(config_.checkpoint.allow_changed, change.key) > 0;
    if (is_other_run && !allowed) {
      refused.push_back(describe(change));
      refused_keys.push_back("\"" + change.key + "\"");
    } else {
      listed.push_back(describe(change));
    }
  }
  if (!listed.empty()) spdlog::warn("Changed since the checkpoint was saved: {}", join(listed, "; "));
  if (!refused.empty())
    throw CheckpointError("it was saved by a run that was not this one: " + join(refused, "; ") +
                          ". Set them back; or use another checkpoint.folder for a new run; or, if the change is "
                          "meant, set checkpoint.allow_changed = [" +
                          join(refused_keys, ", ") + "]");
}

}  // namespace titan::train
