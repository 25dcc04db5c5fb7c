#include "checkpoint/hugging_face/hugging_face_files.h"

#include <spdlog/fmt/fmt.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/fs.h"
#include "base/json_error.h"
#include "base/limits/parse_json.h"
#include "base/text.h"
#include "checkpoint/format/dtype.h"
#include "checkpoint/hugging_face/generation_config.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char *kOnlyFile = "model.safetensors", *kAdapterFile = "adapter_model.safetensors";

OrderedJson parse_config(const std::string& text) {
  OrderedJson config = try_parse_json<OrderedJson>(text);
  if (!config.is_object()) throw CheckpointError("config.json is not a JSON object");
  return config;
}

}  // namespace

std::vector<SafetensorsFile> lay_out_files(std::vector<SafetensorsEntry> entries, std::uint64_t file_bytes) {
  std::vector<SafetensorsFile> files;
  std::uint64_t size = 0;
  for (auto& entry : entries) {
    const std::uint64_t bytes = bytes_of(entry);
    if (files.empty() || (size > 0 && size + bytes > file_bytes)) {
      files.emplace_back();
      size = 0;
    }
    files.back().entries.push_back(std::move(entry));
    size += bytes;
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    auto& file = files[i];
    file.name = files.size() == 1 ? kOnlyFile : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    file.header = make_safetensors_header(file.entries);
    file.size = file.entries.back().begin + bytes_of(file.entries.back());
  }
  return files;
}

std::vector<SafetensorsFile> lay_out_adapter_file(std::vector<SafetensorsEntry> entries) {
  auto files = lay_out_files(std::move(entries), std::numeric_limits<std::uint64_t>::max());
  for (auto& file : files) file.name = kAdapterFile;
  return files;
}

std::string with_dtype(const std::string& config_json, c10::ScalarType dtype) {
  OrderedJson config = parse_config(config_json);
  // Every version of transformers reads "torch_dtype". New versions write "dtype" and would prefer it.
  config.erase("dtype");
  config["torch_dtype"] = dtype_name(dtype);
  return config.dump(2) + "\n";
}

SmallFiles describe_model(const std::string& config_json, c10::ScalarType dtype,
                          const HuggingFaceTokenizer& tokenizer) {
  const auto or_null = [](const std::optional<std::int64_t>& id) { return id ? OrderedJson(*id) : OrderedJson(); };
  OrderedJson config = parse_config(config_json);
  config.update({{"bos_token_id", or_null(tokenizer.bos_id)}, {"eos_token_id", or_null(tokenizer.eos_id)}});
  SmallFiles files = tokenizer.files;
  files["config.json"] = with_dtype(config.dump(), dtype);
  files[kGenerationConfig] = make_generation_config(tokenizer);
  return files;
}

SmallFiles describe_export(const ModelNaming& naming, c10::ScalarType dtype, const HuggingFaceTokenizer& tokenizer) {
  if (naming.adapter_config.empty()) return describe_model(naming.config_json, dtype, tokenizer);
  SmallFiles files = tokenizer.files;
  files[layout::kAdapterConfig] = naming.adapter_config;
  return files;
}

std::uint64_t write_hugging_face_index(const fs::path& folder, const std::vector<SafetensorsFile>& files,
                                       SmallFiles small_files, Checksums checksums) {
  std::uint64_t total = 0, on_disk = 0;
  OrderedJson map = OrderedJson::object();
  for (const auto& file : files) {
    total += file.size - file.header.size();
    on_disk += file.size;
    for (const auto& entry : file.entries) map[entry.name] = file.name;
  }
  const OrderedJson index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  std::pair<std::string, std::string> last = {kHuggingFaceIndex, index.dump(2) + "\n"};
  if (const auto adapter = small_files.extract(layout::kAdapterConfig)) last = {adapter.key(), adapter.mapped()};
  for (const auto& [name, content] : small_files) {
    write_file_atomically(folder / name, content);
    checksums.files[name] = checksum_of(content);
  }
  checksums.files[last.first] = checksum_of(last.second);
  write_checksums(folder, checksums);
  write_file_atomically(folder / last.first, last.second);
  return on_disk;
}

HuggingFaceConfig parse_hugging_face_config(const std::string& text, const std::string& what) {
  try {
    const OrderedJson json = parse_json<OrderedJson>(text);
    HuggingFaceConfig config;
    config.architecture = json.at("architectures").at(0).get<std::string>();
    const auto heads = [](const OrderedJson& value) { return integer_of(value).value_or(0); };
    config.num_heads = heads(json.at("num_attention_heads"));
    const auto kv = json.find("num_key_value_heads");
    config.num_kv_heads = kv == json.end() || kv->is_null() ? config.num_heads : heads(*kv);
    config.tied_embeddings = json.value("tie_word_embeddings", false);
    if (config.num_heads < 1 || config.num_kv_heads < 1) throw CheckpointError("it has no attention heads");
    return config;
  } catch (const std::exception& error) {
    throw CheckpointError(what + " cannot be used: " + json_error_text(error.what()));
  }
}

WeightFiles::WeightFiles(const fs::path& path) {
  const fs::path index = path / kHuggingFaceIndex;
  if (!fs::is_directory(path)) {
    files_ = safetensors_files(path);
  } else if (fs::exists(index)) {
    file_of_ = read_hugging_face_index(index);
    std::set<std::string> names, missing;
    std::error_code no_such_name;  // too long for a file, for example
    for (const auto& [tensor, file] : file_of_)
      (fs::is_regular_file(path / file, no_such_name) ? names : missing).insert(file);
    // An interrupted download lacks some of the files.
    if (!missing.empty())
      throw CheckpointError(index.string() + " names files that are not in the folder: " +
                            join(std::vector<std::string>(missing.begin(), missing.end()), ", ") +
                            "; fetch them again");
    for (const auto& name : names) files_.push_back(path / name);
  } else if (fs::exists(path / kOnlyFile)) {
    files_ = {path / kOnlyFile};
  } else {
    files_ = safetensors_files(path);
  }
}

bool WeightFiles::has(const std::string& tensor, const fs::path& file) const {
  const auto found = file_of_.find(tensor);
  return found == file_of_.end() || found->second == file.filename();
}

std::map<std::string, std::string> read_hugging_face_index(const fs::path& file) {
  try {
    return parse_json<OrderedJson>(read_file(file)).at("weight_map").get<std::map<std::string, std::string>>();
  } catch (const std::exception& error) {
    throw CheckpointError(file.string() + " cannot be used: " + json_error_text(error.what()));
  }
}

}  // namespace titan::checkpoint
