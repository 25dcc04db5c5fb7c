// Plans which rank writes what, and which boxes a load reads. Pure functions: no files, no communication. See
// FORMAT.md.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "checkpoint/dcp/item.h"
#include "checkpoint/dcp/metadata.h"

namespace titan::checkpoint {

// Facts about one item of one rank that the planning rank needs.
struct PlanEntry {
  std::string fqn;
  StatePath path;
  bool is_value = false;
  bool absent = false;  // TensorItem::absent: only its place in the list counts
  bool sharded = false;
  c10::ScalarType dtype = c10::ScalarType::Float;
  dist::ShardSpec spec;
  bool operator==(const PlanEntry&) const = default;
};

// Returns the plan of one rank's items. Throws CheckpointError if an item contradicts itself or a key occurs twice.
std::vector<PlanEntry> local_plan(const std::vector<Item>& items);
std::string encode_plan(const std::vector<PlanEntry>& plan);
std::vector<PlanEntry> decode_plan(const std::string& bytes);

struct SavePlan {
  std::vector<std::vector<std::size_t>> items;  // [rank] indices into its items in file order: values, then tensors
  std::vector<StorageOrder> storage;            // [rank] the same items as entries of the metadata
  Metadata metadata;                            // complete except for the locations
};

// Removes replicas: of the ranks that hold the same (key, offset), the one with the fewest bytes so far writes it.
// Throws CheckpointError if ranks disagree on a key, or if the boxes of a tensor do not make up the full tensor.
SavePlan plan_save(const std::vector<std::vector<PlanEntry>>& plans);

// Sets the location that an entry was written to.
void set_location(Metadata& metadata, const StorageOrder::value_type& entry, StorageLocation location);

// A box to copy from a stored chunk into a wanted tensor.
struct ReadBox {
  std::size_t item = 0;  // index into the wanted items
  const StoredChunk* chunk = nullptr;
  std::vector<std::int64_t> start_in_chunk;
  std::vector<std::int64_t> start_in_local;
  std::vector<std::int64_t> sizes;
};

struct LoadPlan {
  std::vector<ReadBox> boxes;       // sorted by file and offset
  std::vector<std::size_t> values;  // items to read as values
};

// Returns the boxes and values to read; it points into `metadata`. `what` names the checkpoint in errors. Throws one
// CheckpointError that lists all missing keys and all mismatches. Other keys in the checkpoint are ignored, but with
// `all_weights` an unwanted weight (a tensor that is not nested in a group) is also a mismatch. Dtypes may differ.
LoadPlan plan_load(const Metadata& metadata, const std::vector<Item>& items, const std::string& what,
                   bool all_weights = false);

}  // namespace titan::checkpoint
