// What a checkpoint holds. Reads headers and metadata alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tools/convert.h"

namespace titan::checkpoint {

struct KeyInfo {
  std::string name;
  std::string group;  // "model", "optimizer" or "other"
  bool is_value = false;
  std::string dtype;                // of a tensor: "float32"
  std::vector<std::int64_t> shape;  // of a tensor
  std::size_t shards = 1;
  std::uint64_t bytes = 0;  // of a tensor's elements; of a value's archive
};

struct FileInfo {
  std::string name;
  std::uint64_t size = 0;
};

struct Inspection {
  std::filesystem::path path;
  CheckpointKind kind = CheckpointKind::kDcp;
  std::optional<std::int64_t> step;
  std::optional<std::int64_t> tokens_seen;
  std::int64_t saved_at = 0;          // seconds since 1970, when the file that a save writes last was changed
  std::optional<std::int64_t> ranks;  // that saved it
  std::string save_id;                // "" when the format has none
  bool has_checksums = false;         // titan.checksums.json, of this save
  std::vector<KeyInfo> keys;          // in the order of the file
  std::vector<FileInfo> files;
};

// Throws CheckpointError when `path` is not a checkpoint, or DamagedCheckpoint when it cannot be read.
Inspection inspect_checkpoint(const std::filesystem::path& path);

// Tells the tokenizer of the run that saved `path` from others, as that run put it (TokenizerFacts::fingerprint).
// Nothing where the checkpoint does not say so: one that holds the model alone, or of another program. Throws
// CheckpointError for one that cannot be read.
std::optional<std::string> tokenizer_of_run(const std::filesystem::path& path);

}  // namespace titan::checkpoint
