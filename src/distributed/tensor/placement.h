// Placement of a tensor on one axis of a mesh, after torch.distributed.tensor's placement types.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>

namespace titan::dist {

// Every rank along the mesh axis holds the same values.
struct Replicate {
  bool operator==(const Replicate&) const = default;
};

// The ranks hold torch.chunk's pieces of tensor dim `dim`: ceil(size / ranks) each, the last ones fewer or none. If
// several mesh axes shard one tensor dim, the leftmost cuts first, and the next ones cut its pieces.
struct Shard {
  std::int64_t dim;  // negative counts from the end
  bool operator==(const Shard&) const = default;
};

// Like Shard, but this mesh axis cuts after those to its right, which cut the dim into `split_factor` pieces:
// fully_shard (left) shards a parameter that tensor parallelism (right) has cut before (PyTorch's _StridedShard).
struct StridedShard {
  std::int64_t dim;
  std::int64_t split_factor;
  bool operator==(const StridedShard&) const = default;
};

enum class PartialOp { kSum, kAvg, kMax, kMin };

// Each rank holds a term of a reduction that is still to be done.
struct Partial {
  PartialOp op = PartialOp::kSum;
  bool operator==(const Partial&) const = default;
};

using Placement = std::variant<Replicate, Shard, StridedShard, Partial>;

// Returns the tensor dim that a placement cuts; nullopt if it cuts none.
std::optional<std::int64_t> shard_dim(const Placement& placement);
// Returns "Shard(0)", and "(Replicate(), Shard(0))" for all mesh axes.
std::string placement_text(const Placement& placement);
std::string placements_text(std::span<const Placement> placements);

}  // namespace titan::dist
