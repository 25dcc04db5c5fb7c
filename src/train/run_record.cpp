#include "train/run_record.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/error.h"
#include "base/run_layout.h"
#include "base/text.h"
#include "checkpoint/torchtitan_keys.h"
#include "config/keys/changes.h"

namespace titan::train {
namespace {

constexpr const char* kTokenizerKey = "model.hf_assets_path";
constexpr const char* kTemplateKey = "chat.chat_template";
constexpr const char* kTemplateEntry = "chat_template";  // of the record
constexpr const char* kSpecialTokensEntry = "chat_special_tokens";
constexpr const char* kHeldOutKey = "validation.dataset_path";

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

// Judges the tokenizer. The same tokenizer in a folder that moved is fine; another tokenizer in the same folder is a
// change.
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

// Judges the chat template by its text and its special tokens: the same text in another file is fine. Checkpoints of
// before these were recorded, and of runs without a template, say nothing.
void judge_template(std::vector<config::Change>& changes, const Value& saved, const TokenizerFacts& now,
                    const config::JobConfig& config) {
  const auto differs = [&](const char* entry, const std::string& value) {
    const Value* found = saved.as_dict(checkpoint::kRunKey).find(entry);
    return found && found->as_string("titan.run." + std::string(entry)) != value;
  };
  if (now.chat_template.empty() || !saved.as_dict(checkpoint::kRunKey).find(kTemplateEntry)) return;
  const bool is_other_text = differs(kTemplateEntry, now.chat_template);
  const bool is_other = is_other_text || differs(kSpecialTokensEntry, now.chat_special_tokens);
  const auto change = std::ranges::find(changes, kTemplateKey, &config::Change::key);
  if (change != changes.end()) {
    if (!is_other) change->effect = config::Effect::kTraining;
    if (is_other_text)
      change->saved += ", of which the checkpoint keeps the text as " + std::string(layout::kChatTemplateFile);
  } else if (is_other) {
    const std::string place = config.chat.chat_template
                                  ? "\"" + *config.chat.chat_template + "\""
                                  : "that of the tokenizer in \"" + config.model.hf_assets_path + "\"";
    const std::string before =
        is_other_text ? "another template, which the checkpoint keeps as " + std::string(layout::kChatTemplateFile)
                      : "one with other special tokens";
    changes.push_back({kTemplateKey, before, place, config::Effect::kData});
  }
}

// Data files as a checkpoint records them.
struct FilesOfRun {
  const char* entry;  // entry of the record
  const char* key;    // key that names them in the configuration
  std::string now;
  bool may_move;              // true if one folder is named, not a mixture
  config::Effect of_changed;  // effect of other content under the same name
  bool is_named_anew = false;
};

// True if the held-out path changed. The record's configuration leaves out [validation], which does not affect
// training.
bool names_other_held_out(const Value& saved, const config::JobConfig& now) {
  const Value* was = saved.as_dict(checkpoint::kRunKey).find("held_out_path");
  return was && was->as_string("titan.run.held_out_path") != now.validation.dataset_path.value_or("");
}

// Judges data files. The same files in a folder that moved are fine; other files under the same path are a change.
void judge_files(std::vector<config::Change>& changes, const Value& saved, const DataFacts& data,
                 const FilesOfRun& of) {
  const Value* found = saved.as_dict(checkpoint::kRunKey).find(of.entry);
  if (!found || of.now.empty()) return;
  const std::string different = data.differences(found->as_string("titan.run." + std::string(of.entry)), of.now);
  const auto change = std::ranges::find(changes, of.key, &config::Change::key);
  if (change != changes.end()) {
    if (different.empty() && of.may_move) change->effect = config::Effect::kTraining;
  } else if (!different.empty()) {
    changes.push_back(
        {of.key, "other data", "changed: " + different, of.is_named_anew ? config::Effect::kTraining : of.of_changed});
  }
}

// Judges the training and held-out data. Losses on other held-out data are not comparable with those before. A user
// who names another set knows that, so the difference is only reported.
void judge_data(std::vector<config::Change>& changes, const Value& saved, const DataFacts& now,
                const config::JobConfig& config) {
  const bool is_mixture = !config.training.dataset_mix.empty();
  judge_files(changes, saved, now,
              {"files", is_mixture ? "training.dataset_mix" : "training.dataset_path", now.files, !is_mixture,
               config::Effect::kData});
  judge_files(changes, saved, now,
              {"held_out_files", kHeldOutKey, now.held_out_files, true, config::Effect::kModel,
               names_other_held_out(saved, config)});
}

}  // namespace

Value RunRecord::value() const {
  std::vector<std::pair<Value, Value>> keys;
  for (const auto& [key, value] : config::flatten(config_)) keys.emplace_back(key, value);
  std::vector<std::pair<Value, Value>> items = {{"config", Value::dict(std::move(keys))},
                                                {"tokenizer", tokenizer_.fingerprint}};
  if (!tokenizer_.chat_template.empty()) {
    items.emplace_back(kTemplateEntry, tokenizer_.chat_template);
    items.emplace_back(kSpecialTokensEntry, tokenizer_.chat_special_tokens);
  }
  if (!data_.files.empty()) items.emplace_back("files", data_.files);
  if (!data_.held_out_files.empty()) {
    items.emplace_back("held_out_files", data_.held_out_files);
    items.emplace_back("held_out_path", config_.validation.dataset_path.value_or(""));
  }
  return Value::dict(std::move(items));
}

void RunRecord::check(const Value& saved) const {
  auto changes = config::find_changes(flat_config(saved), config_);
  judge_tokenizer(changes, saved, tokenizer_.fingerprint, config_.model.hf_assets_path);
  judge_template(changes, saved, tokenizer_, config_);
  judge_data(changes, saved, data_, config_);
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
