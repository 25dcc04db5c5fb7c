// The files of a model in Hugging Face's format: their layout, config.json, the index. Does not write weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/run_layout.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/io/checksums.h"
#include "facts/model_naming.h"

namespace titan::checkpoint {

inline constexpr const char* kHuggingFaceIndex = layout::kHuggingFaceIndex;

struct SafetensorsFile {
  std::string name;  // model-00001-of-00002.safetensors, or model.safetensors if it is the only one
  std::vector<SafetensorsEntry> entries;
  std::string header;
  std::uint64_t size = 0;
};

// Distributes the tensors over files in order, with at most `file_bytes` of tensor data per file; a larger tensor gets
// its own file. Throws CheckpointError for a dtype that safetensors files cannot hold.
std::vector<SafetensorsFile> lay_out_files(std::vector<SafetensorsEntry> entries, std::uint64_t file_bytes);

// Returns the one file of adapters, adapter_model.safetensors, as PEFT calls it.
std::vector<SafetensorsFile> lay_out_adapter_file(std::vector<SafetensorsEntry> entries);

// Name -> content of the files beside the weights: config.json, generation_config.json, the tokenizer's files. With
// layout::kAdapterConfig the weights are adapters, and there is no index.
using SmallFiles = std::map<std::string, std::string>;

// Returns config.json (`config_json` with the dtype of the weights, BOS and EOS), generation_config.json
// (generation_config.h) and the tokenizer's files. For a token that the tokenizer does not have, config.json has an
// explicit null, because readers use other models' tokens if the key is missing. Throws CheckpointError if
// `config_json` is not a JSON object.
SmallFiles describe_model(const std::string& config_json, c10::ScalarType dtype, const HuggingFaceTokenizer& tokenizer);

// Returns the files of an export of a model with this naming: describe_model(), or with adapters their configuration
// and the tokenizer's files.
SmallFiles describe_export(const ModelNaming& naming, c10::ScalarType dtype, const HuggingFaceTokenizer& tokenizer);

// Returns `config_json` for weights of the same model with another dtype. Throws like describe_model().
std::string with_dtype(const std::string& config_json, c10::ScalarType dtype);

// Writes `small_files`, the checksums (those given, of `files`, and those of the files written here), and last the
// index, or adapter_config.json if the files hold adapters. Returns the bytes of `files`.
std::uint64_t write_hugging_face_index(const std::filesystem::path& folder, const std::vector<SafetensorsFile>& files,
                                       SmallFiles small_files, Checksums checksums);

// The part of config.json that a conversion needs.
struct HuggingFaceConfig {
  std::string architecture;  // "LlamaForCausalLM"
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  bool tied_embeddings = false;  // the output projection is the embedding, and is not stored
};
// `what` names the file in errors. Throws CheckpointError if the text is not JSON or lacks the architecture or heads.
HuggingFaceConfig parse_hugging_face_config(const std::string& json, const std::string& what);

// Picks the files with the weights of `path`, a folder or one file, as transformers does: the files that the index
// names; without an index model.safetensors; without that all *.safetensors.
class WeightFiles {
 public:
  // Throws CheckpointError if there are no such files, or if files of the index are not in the folder.
  explicit WeightFiles(const std::filesystem::path& path);
  const std::vector<std::filesystem::path>& files() const { return files_; }
  // Returns tensor -> file from the index; empty without an index.
  const std::map<std::string, std::string>& index() const { return file_of_; }
  // True unless the index places the tensor in another file.
  bool has(const std::string& tensor, const std::filesystem::path& file) const;

 private:
  std::vector<std::filesystem::path> files_;
  std::map<std::string, std::string> file_of_;  // by tensor
};

// Returns tensor -> file from model.safetensors.index.json. Throws CheckpointError.
std::map<std::string, std::string> read_hugging_face_index(const std::filesystem::path& file);

}  // namespace titan::checkpoint
