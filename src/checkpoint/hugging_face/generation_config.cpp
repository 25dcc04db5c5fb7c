#include "checkpoint/hugging_face/generation_config.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/fs.h"
#include "base/json_error.h"
#include "base/limits/parse_json.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

Json read_object(const fs::path& file) {
  try {
    Json json = parse_json<Json>(read_file(file));
    if (!json.is_object()) throw CheckpointError("it is not a JSON object");
    return json;
  } catch (const std::exception& error) {
    throw CheckpointError(file.string() + " cannot be used: " + json_error_text(error.what()));
  }
}

std::vector<std::int64_t> stop_ids_of(const Json& json, const fs::path& file) {
  const Json found = json.value("eos_token_id", Json());
  if (found.is_null()) return {};
  std::vector<std::int64_t> ids;
  for (const Json& id : found.is_array() ? found : Json::array({found})) {
    const auto integer = integer_of(id);
    if (!integer)
      throw CheckpointError(file.string() +
                            " cannot be used: eos_token_id: expected a number or a list of numbers, found " +
                            found.dump());
    ids.push_back(*integer);
  }
  return ids;
}

// Returns what the folder says of how its model generates. Without a generation_config.json, transformers
// takes the tokens of config.json.
GenerationDefaults read_defaults(const fs::path& folder) {
  const fs::path file = folder / kGenerationConfig;
  if (!fs::is_regular_file(file)) return {.stop_ids = read_stop_tokens(folder)};
  const Json json = read_object(file);
  return {.json = json.dump(), .stop_ids = stop_ids_of(json, file)};
}

Json one_or_list(const std::vector<std::int64_t>& ids) { return ids.size() == 1 ? Json(ids.front()) : Json(ids); }

}  // namespace

std::string make_generation_config(const HuggingFaceTokenizer& tokenizer) {
  Json out = {{"bos_token_id", nullptr}, {"eos_token_id", nullptr}};
  if (!tokenizer.generation_defaults.empty()) {
    const Json defaults = try_parse_json<Json>(tokenizer.generation_defaults);
    if (!defaults.is_object()) throw CheckpointError("generation_config.json is not a JSON object");
    out.update(defaults);
  }
  if (tokenizer.bos_id) out["bos_token_id"] = *tokenizer.bos_id;
  if (!tokenizer.stop_ids.empty()) out["eos_token_id"] = one_or_list(tokenizer.stop_ids);
  // With this mark, older versions of transformers prefer the one EOS of config.json.
  out.erase("_from_model_config");
  return out.dump(2) + "\n";
}

std::vector<std::int64_t> read_stop_tokens(const fs::path& folder) {
  for (const char* name : {kGenerationConfig, "config.json"}) {
    const fs::path file = folder / name;
    if (!fs::is_regular_file(file)) continue;
    if (auto ids = stop_ids_of(read_object(file), file); !ids.empty()) return ids;
  }
  return {};
}

std::string without_token_ids(const std::string& json) {
  if (json.empty()) return json;
  Json out = parse_json<Json>(json);
  const auto names_tokens = [](const std::string& key) {
    constexpr std::array<std::string_view, 6> kLists = {"suppress_tokens", "begin_suppress_tokens",
                                                        "bad_words_ids",   "force_words_ids",
                                                        "sequence_bias",   "forced_decoder_ids"};
    return key.ends_with("_token_id") || std::ranges::count(kLists, key) > 0;
  };
  std::vector<std::string> keys;
  for (const auto& item : out.items())
    if (names_tokens(item.key())) keys.push_back(item.key());
  for (const std::string& key : keys) out.erase(key);
  return out.dump();
}

GenerationDefaults kept_defaults(const fs::path& folder, const std::string& what) {
  if (folder.empty()) return {};
  std::string reason = "training started from there, and it is gone";
  try {
    if (fs::is_directory(folder)) return read_defaults(folder);
  } catch (const std::exception& error) {
    reason = error.what();
  }
  spdlog::warn("{} of {}: {}", what, folder.string(), reason);
  return {};
}

}  // namespace titan::checkpoint
