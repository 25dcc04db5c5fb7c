// Inspects what a checkpoint holds. Reads only headers and metadata.
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
  std::string dtype;                // only for a tensor: "float32"
  std::vector<std::int64_t> shape;  // only for a tensor
  std::size_t shards = 1;
  std::uint64_t bytes = 0;  // size of a tensor's elements or of a value's archive
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
  std::int64_t saved_at = 0;          // seconds since 1970: when the file that a save writes last was changed
  std::optional<std::int64_t> ranks;  // number of ranks that saved it
  std::string save_id;                // empty if the format has none
  std::string names;                  // says that the keys' names are not ours; empty if they are
  bool has_checksums = false;         // titan.checksums.json, of this save
  std::vector<KeyInfo> keys;          // in the order of the file
  std::vector<FileInfo> files;
};

// True if there is state of an optimizer, as in a checkpoint of a run, or of another program that uses the engine.
bool has_optimizer(const Inspection& checkpoint);

// Throws CheckpointError when `path` is not a checkpoint, DamagedCheckpoint when its content is wrong, ReadError when
// it cannot be read.
Inspection inspect_checkpoint(const std::filesystem::path& path);

// Returns the fingerprint of the tokenizer of the run that saved `path` (TokenizerFacts::fingerprint). nullopt if the
// checkpoint does not have it (model only, or of another program). Throws CheckpointError if it cannot be read.
std::optional<std::string> tokenizer_of_run(const std::filesystem::path& path);

}  // namespace titan::checkpoint
