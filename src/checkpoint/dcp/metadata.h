// The .metadata file of a checkpoint: what is stored, in which boxes, and in which byte range of which file. See
// FORMAT.md.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "checkpoint/format/state_path.h"
#include "checkpoint/io/checksums.h"

namespace titan::checkpoint {

// A byte range of a file in the checkpoint folder; it holds one complete torch.save archive.
struct StorageLocation {
  std::string relative_path;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  bool operator==(const StorageLocation&) const = default;
};

// One stored box of a tensor.
struct StoredChunk {
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> sizes;
  StorageLocation location;
};

struct TensorEntry {
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<std::int64_t> size;  // shape of the full tensor
  std::vector<StoredChunk> chunks;
};

struct ValueEntry {
  StorageLocation location;
};

struct Metadata {
  using Entry = std::variant<TensorEntry, ValueEntry>;

  std::vector<std::string> order;  // keys in the order of the file
  std::unordered_map<std::string, Entry> entries;
  std::unordered_map<std::string, StatePath> paths;
  std::string save_id;  // UUID of the save that wrote the file; empty if there is none

  const Entry* find(const std::string& fqn) const;
  const TensorEntry* find_tensor(const std::string& fqn) const;
};

// Entries of the file's storage table in file order: (key, chunk index), or (key, nullopt) for a value.
using StorageOrder = std::vector<std::pair<std::string, std::optional<std::size_t>>>;

// Returns the bytes of .metadata. `storage_order` lists every entry once. `checkpoint_path` is informative; `save_id`
// ties the checksums to this file.
std::string encode_metadata(const Metadata& metadata, const StorageOrder& storage_order,
                            const std::filesystem::path& checkpoint_path, const std::string& save_id);

// Parses a .metadata file; `what` names it in errors. Throws CheckpointError for bytes that are not a .metadata file,
// for boxes outside their tensor, and for chunks or values without a storage location.
Metadata decode_metadata(std::string bytes, const std::string& what);

// Reads `folder`/.metadata. Throws CheckpointError if it is missing or damaged, ReadError if it cannot be read.
Metadata read_metadata(const std::filesystem::path& folder);

// Reads .metadata with the folder's checksums, if it has some that belong to it. Throws CheckpointError if the bytes
// differ from those that were written. Ignores, with a warning, checksums of a save that another program overwrote.
struct VerifiedMetadata {
  Metadata metadata;
  std::optional<Checksums> checksums;
};
VerifiedMetadata read_verified_metadata(const std::filesystem::path& folder);

// True if the folder holds a finished checkpoint: .metadata is written last. Throws ReadError.
bool is_complete(const std::filesystem::path& folder);

}  // namespace titan::checkpoint
