// The sharding of one tensor over a mesh: a placement per mesh axis, and the resulting box of the global tensor for
// this rank. Only metadata, no communication; DTensor adds the tensor.
#pragma once

#include <vector>

#include "distributed/mesh.h"
#include "distributed/tensor/placement.h"
#include "facts/shard_spec.h"

namespace titan::dist {

// Returns the box at `coordinate` of a mesh of `mesh_shape`. Partial and Replicate cut nothing. `placements` must be
// resolved by Sharding::of.
ShardSpec box_of(const std::vector<std::int64_t>& global_shape, const std::vector<int>& mesh_shape,
                 const std::vector<int>& coordinate, const std::vector<Placement>& placements);

// Returns the mesh axes that cut `tensor_dim`, in the order of the cuts.
std::vector<int> split_order(const std::vector<Placement>& placements, std::int64_t tensor_dim);

// The first index and the number of elements of chunk `index` when torch.chunk splits `size` into `chunks`.
struct Chunk {
  std::int64_t first;
  std::int64_t count;
};
Chunk chunk_of(std::int64_t size, std::int64_t chunks, std::int64_t index);

struct Sharding {
  DeviceMesh mesh;
  std::vector<Placement> placements;  // one per mesh axis, tensor dims not negative
  ShardSpec spec;                     // this rank's box

  // Resolves negative dims. Throws DistError if there is not one placement per mesh axis, a dim is out of range, a
  // StridedShard's split_factor is not the number of pieces that the mesh axes to its right cut, or the operations of
  // Partials do not commute.
  static Sharding of(const std::vector<std::int64_t>& global_shape, const DeviceMesh& mesh,
                     std::vector<Placement> placements);

  // Cuts this rank's piece once more along tensor dim `dim`, over the last axis of `outer`, and replicates it over
  // the other axes. Returns a sharding over the axes of `outer`, then this one's. Both meshes must be slices of one.
  // Throws DistError.
  Sharding cut_again(const DeviceMesh& outer, std::int64_t dim) const;
};

}  // namespace titan::dist
