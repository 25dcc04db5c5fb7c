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
  std::vector<std::int64_t> size;  // of the whole tensor
  std::vector<StoredChunk> chunks;
};

struct ValueEntry {
  StorageLocation location;
};

// Where a flat key came from in the nested state: "optimizer.state.X.step" -> {"optimizer", "state.X.step"}.
using StatePath = std::vector<std::variant<std::string, std::int64_t>>;

struct Metadata {
  using Entry = std::variant<TensorEntry, ValueEntry>;

  std::vector<std::string> order;  // keys as they are listed in the file
  std::unordered_map<std::string, Entry> entries;
  std::unordered_map<std::string, StatePath> paths;
  std::string save_id;  // a UUID of the save that wrote the file; "" when it names none

  const Entry* find(const std::string& fqn) const;
  const TensorEntry* find_tensor(const std::string& fqn) const;
};

// One line of the file's storage table, in file order: (key, chunk number or nothing for a value).
using StorageOrder = std::vector<std::pair<std::string, std::optional<std::size_t>>>;

// The bytes of .metadata. `storage_order` lists every entry once. `checkpoint_path` and `save_id` are informative.
std::string encode_metadata(const Metadata& metadata, const StorageOrder& storage_order,
                            const std::filesystem::path& checkpoint_path, const std::string& save_id);

// `what` names the file in errors. Throws CheckpointError for bytes that are not a .metadata file, for boxes outside
// their tensor, and for chunks or values without a storage location.
Metadata decode_metadata(std::string bytes, const std::string& what);

// Reads `folder`/.metadata. Throws CheckpointError when there is none or it is damaged.
Metadata read_metadata(const std::filesystem::path& folder);

// The same with the folder's checksums, when it has some that belong to this .metadata. Throws CheckpointError when the
// bytes are not those that were written. Checksums of an older save, which another program wrote over, are passed over
// with a warning.
struct VerifiedMetadata {
  Metadata metadata;
  std::optional<Checksums> checksums;
};
VerifiedMetadata read_verified_metadata(const std::filesystem::path& folder);

// True when the folder holds a finished checkpoint: .metadata is written last.
bool is_complete(const std::filesystem::path& folder);

}  // namespace titan::checkpoint
