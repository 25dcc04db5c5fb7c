// The files of a model in Hugging Face's format, whoever writes the numbers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checksums.h"
#include "checkpoint/safetensors.h"

namespace titan::checkpoint {

inline constexpr const char* kHuggingFaceIndex = "model.safetensors.index.json";

struct SafetensorsFile {
  std::string name;  // model-00001-of-00002.safetensors
  std::vector<SafetensorsEntry> entries;
  std::string header;
  std::uint64_t size = 0;
};

// Deals the tensors to files in their order: at most `file_bytes` of numbers a file, a larger tensor alone. Throws
// CheckpointError for a dtype that safetensors files cannot hold.
std::vector<SafetensorsFile> lay_out_files(std::vector<SafetensorsEntry> entries, std::uint64_t file_bytes);

// config.json, the checksums (of `files` as given, and of what is written here), and last the index. Gives the bytes of
// all files.
std::uint64_t write_hugging_face_index(const std::filesystem::path& folder, const std::vector<SafetensorsFile>& files,
                                       const std::string& config_json, Checksums checksums);

// What a conversion must know of config.json.
struct HuggingFaceConfig {
  std::string architecture;  // "LlamaForCausalLM"
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  bool tied_embeddings = false;  // the output projection is the embedding, and is not stored
};
// `what` names the file in errors. Throws CheckpointError for what is no JSON or names no architecture and heads.
HuggingFaceConfig parse_hugging_face_config(const std::string& json, const std::string& what);

// Tensor -> file, of model.safetensors.index.json. Throws CheckpointError.
std::map<std::string, std::string> read_hugging_face_index(const std::filesystem::path& file);

}  // namespace titan::checkpoint
