// What a checkpoint holds, and whether it is whole. Reads headers and metadata alone, unless it verifies.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/convert.h"

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
  std::string save_id;         // "" when the format has none
  bool has_checksums = false;  // titan.checksums.json, of this save
  std::vector<KeyInfo> keys;   // in the order of the file
  std::vector<FileInfo> files;
};

// Throws CheckpointError when `path` is no checkpoint, or DamagedCheckpoint when it cannot be read.
Inspection inspect_checkpoint(const std::filesystem::path& path);

// One folder step-N, step-N.tmp or step-N.replaced of a run.
struct StepInfo {
  std::string name;
  std::int64_t step = 0;
  enum class State { kComplete, kIncomplete, kDamaged } state = State::kIncomplete;
  std::string holds;   // "full", "model only", "Hugging Face"; "" when it is not known
  std::string detail;  // why it is incomplete or damaged
  std::uint64_t bytes = 0;
};

// By step; nothing when `folder` has no such folder in it.
std::vector<StepInfo> inspect_run(const std::filesystem::path& folder);

// Reads everything that `path` (a checkpoint) holds, in small blocks: files against their checksums, every stored
// record against its own, boxes against the tensors that they make up, descriptions against .metadata. Gives all faults
// that are found; none when the checkpoint is whole.
std::vector<std::string> verify_checkpoint(const std::filesystem::path& path);

}  // namespace titan::checkpoint
