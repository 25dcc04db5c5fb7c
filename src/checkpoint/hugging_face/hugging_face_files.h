// The files of a model in Hugging Face's format, whoever writes the numbers.
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

namespace titan::checkpoint {

inline constexpr const char* kHuggingFaceIndex = layout::kHuggingFaceIndex;

struct SafetensorsFile {
  std::string name;  // model-00001-of-00002.safetensors, of one alone model.safetensors
  std::vector<SafetensorsEntry> entries;
  std::string header;
  std::uint64_t size = 0;
};

// Deals the tensors to files in their order: at most `file_bytes` of numbers a file, a larger tensor alone. Throws
// CheckpointError for a dtype that safetensors files cannot hold.
std::vector<SafetensorsFile> lay_out_files(std::vector<SafetensorsEntry> entries, std::uint64_t file_bytes);

// Name -> content of what stands beside the weights: config.json, generation_config.json, the tokenizer's.
using SmallFiles = std::map<std::string, std::string>;

// Those of the model: `config_json` with the dtype of the weights and the tokens that begin and end a text, and
// generation_config.json with these tokens. Nothing: there is no such token; the file then says so, because readers
// take other models' tokens where nothing is said. Throws CheckpointError where `config_json` is not a JSON object.
SmallFiles describe_model(const std::string& config_json, c10::ScalarType dtype, std::optional<std::int64_t> bos_id,
                          std::optional<std::int64_t> eos_id);

// `config_json` of other weights of the same model, which have another dtype. Throws as describe_model() does.
std::string with_dtype(const std::string& config_json, c10::ScalarType dtype);

// `small_files`, the checksums (of `files` as given, and of what is written here), and last the index. Gives the bytes
// of the weights' files.
std::uint64_t write_hugging_face_index(const std::filesystem::path& folder, const std::vector<SafetensorsFile>& files,
                                       const SmallFiles& small_files, Checksums checksums);

// What a conversion must know of config.json.
struct HuggingFaceConfig {
  std::string architecture;  // "LlamaForCausalLM"
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  bool tied_embeddings = false;  // the output projection is the embedding, and is not stored
};
// `what` names the file in errors. Throws CheckpointError for what is not JSON or names no architecture and heads.
HuggingFaceConfig parse_hugging_face_config(const std::string& json, const std::string& what);

// The tokens that end a text, as transformers' generate() has them: eos_token_id of the folder's
// generation_config.json, or else of its config.json; none where neither says. Throws CheckpointError for a file that
// cannot be read.
std::vector<std::int64_t> read_stop_tokens(const std::filesystem::path& folder);

// Picks the files with the weights of `path`, a folder or one file, as transformers does: those that the index names,
// without one model.safetensors alone, else all *.safetensors.
class WeightFiles {
 public:
  // Throws CheckpointError where there are none, and for files of the index that are not in the folder.
  explicit WeightFiles(const std::filesystem::path& path);
  const std::vector<std::filesystem::path>& files() const { return files_; }
  // Tensor -> file, as the index says; empty without one.
  const std::map<std::string, std::string>& index() const { return file_of_; }
  // True unless the index says that the tensor is in another of the files.
  bool has(const std::string& tensor, const std::filesystem::path& file) const;

 private:
  std::vector<std::filesystem::path> files_;
  std::map<std::string, std::string> file_of_;  // by tensor
};

// Tensor -> file, of model.safetensors.index.json. Throws CheckpointError.
std::map<std::string, std::string> read_hugging_face_index(const std::filesystem::path& file);

}  // namespace titan::checkpoint
