#include "config/keys/changes.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string_view>

#include "config/keys/fields.h"

namespace titan::config {
namespace {

constexpr std::array<std::string_view, 7> kTablesWithoutEffect = {"job.",  "profiling.",  "metrics.",   "checkpoint.",
                                                                  "comm.", "validation.", "evaluation."};
// Keys that only watch what is computed, whose effect is in other keys, or that nothing here reads.
constexpr std::array<std::string_view, 7> kKeysWithoutEffect = {"model.from",
                                                                "debug.checksum_freq",
                                                                "debug.memory_check_freq",
                                                                "training.gc_freq",
                                                                "training.gc_debug",
                                                                "activation_checkpoint.determinism_check",
                                                                "activation_checkpoint.debug"};
constexpr std::array<std::string_view, 6> kDataKeys = {"training.dataset",     "training.dataset_path",
                                                       "training.dataset_mix", "training.dataset_text_key",
                                                       "training.seq_len",     "debug.seed"};

std::optional<Effect> effect_of(std::string_view key) {
  if (key.starts_with("chat.") && key != "chat.loss_weight") return Effect::kData;
  if (std::ranges::any_of(kTablesWithoutEffect, [&](std::string_view table) { return key.starts_with(table); }))
    return std::nullopt;
  if (std::ranges::count(kKeysWithoutEffect, key) > 0) return std::nullopt;
  if (key.starts_with("model.") || key == "lora.rank" || key == "lora.alpha" || key == "lora.targets")
    return Effect::kModel;
  return std::ranges::count(kDataKeys, key) > 0 ? Effect::kData : Effect::kTraining;
}

// Different paths like "assets/corpus" and "/home/me/assets/corpus" may name the same place.
bool is_same_place(std::string_view key, const std::string& a, const std::string& b) {
  if ((!key.ends_with("_path") && key != "chat.chat_template") || a.size() < 2 || b.size() < 2 || a.front() != '"' ||
      b.front() != '"')
    return false;
  const auto resolve = [](const std::string& quoted) {
    std::error_code error;
    const auto path =
        std::filesystem::weakly_canonical(std::filesystem::absolute(quoted.substr(1, quoted.size() - 2)), error);
    return error ? std::filesystem::path(quoted) : path;
  };
  return resolve(a) == resolve(b);
}

}  // namespace

FlatConfig flatten(const JobConfig& config) {
  FlatConfig flat;
  for (const Field& field : fields()) {
    if (effect_of(field.key)) flat[field.key] = to_toml_value(field.get(config));
  }
  return flat;
}

std::vector<Change> find_changes(const FlatConfig& saved, const JobConfig& now) {
  std::vector<Change> changes;
  for (const Field& field : fields()) {
    const auto effect = effect_of(field.key);
    if (!effect) continue;
    const auto found = saved.find(field.key);
    const std::string before = found == saved.end() ? to_toml_value(default_value(field)) : found->second;
    const std::string after = to_toml_value(field.get(now));
    if (before != after && !is_same_place(field.key, before, after))
      changes.push_back({field.key, before, after, *effect});
  }
  return changes;
}

}  // namespace titan::config
