#include "data/tokenizer/tokenizer_export.h"

#include <spdlog/spdlog.h>

#include <array>
#include <nlohmann/json.hpp>

#include "base/fs.h"
#include "data/tokenizer/sentencepiece_export.h"

namespace titan::data {
namespace {

namespace fs = std::filesystem;
using Files = std::map<std::string, std::string>;

constexpr const char* kJson = "tokenizer.json";
constexpr const char* kModel = "tokenizer.model";
constexpr const char* kConfig = "tokenizer_config.json";

// Names of a tokenizer's files in its folder, which may also hold a model and its description.
constexpr std::array kNames = {
    kJson,        kModel,       kConfig,     "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "merges.txt", "vocab.txt", "chat_template.jinja",     "chat_template.json"};

void complete(Files& files, const fs::path& path) {
  nlohmann::ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  if (files.contains(kConfig)) return;
  if (files.contains(kJson)) {
    files[kConfig] = config.dump(2) + "\n";
    return;
  }
  const auto made = make_tokenizer_json(files[kModel]);
  if (!made.reason.empty()) {
    spdlog::warn(
        "the tokenizer {} was copied as it is: {}, so transformers' AutoTokenizer may make other ids of a text than "
        "this program, or not open it",
        path.string(), made.reason);
    return;
  }
  files[kJson] = made.json;
  for (const auto& [key, token] : made.special_tokens) config[key] = token;
  config["clean_up_tokenization_spaces"] = false;
  files[kConfig] = config.dump(2) + "\n";
}

}  // namespace

bool has_tokenizer(const fs::path& folder) { return fs::exists(folder / kJson) || fs::exists(folder / kModel); }

std::map<std::string, std::string> tokenizer_files(const fs::path& path) {
  Files files;
  const bool is_file = !fs::is_directory(path);
  const char* own_name = path.extension() == ".json" ? kJson : kModel;
  // A tokenizer.json is read with the files beside it, a tokenizer.model alone.
  if (is_file) files[own_name] = read_file(path);
  if (is_file && own_name == kModel) return files;
  const fs::path folder = is_file ? path.parent_path() : path;
  for (const char* name : kNames) {
    if (is_file && (name == kJson || name == kModel)) continue;
    if (fs::is_regular_file(folder / name)) files[name] = read_file(folder / name);
  }
  return files;
}

HuggingFaceTokenizer export_tokenizer(const fs::path& path, const Tokenizer& tokenizer) {
  HuggingFaceTokenizer out{.files = tokenizer_files(path), .bos_id = tokenizer.bos_id(), .eos_id = tokenizer.eos_id()};
  complete(out.files, path);
  return out;
}

}  // namespace titan::data
