// How one tensor lies on a mesh: a placement for every mesh axis, and the box of the global tensor that follows for
// this rank. Plain numbers; nothing here communicates. The tensor that goes with it is in DTensor.
#pragma once

#include <vector>

#include "distributed/mesh.h"
#include "distributed/tensor/placement.h"
#include "facts/shard_spec.h"

namespace titan::dist {

// The box at `coordinate` of a mesh of `mesh_shape`. Partial and Replicate cut nothing. Placements as resolved by
// Sharding::of.
ShardSpec box_of(const std::vector<std::int64_t>& global_shape, const std::vector<int>& mesh_shape,
                 const std::vector<int>& coordinate, const std::vector<Placement>& placements);

// The mesh axes that cut `tensor_dim`, in the order in which they do.
std::vector<int> split_order(const std::vector<Placement>& placements, std::int64_t tensor_dim);

// The first index and the number of elements that a torch.chunk of `size` into `chunks` gives to chunk `index`.
struct Chunk {
  std::int64_t first;
  std::int64_t count;
};
Chunk chunk_of(std::int64_t size, std::int64_t chunks, std::int64_t index);

struct Sharding {
  DeviceMesh mesh;
  std::vector<Placement> placements;  // one per mesh axis, tensor dims not negative
  ShardSpec spec;                     // this rank's box

  // Resolves negative dims. Throws DistError: not one placement per mesh axis, a dim out of range, a
  // StridedShard whose split_factor is not the number of pieces that the mesh axes to its right cut, Partial of
  // operations that do not commute.
  static Sharding of(const std::vector<std::int64_t>& global_shape, const DeviceMesh& mesh,
                     std::vector<Placement> placements);

  // What results when this rank's piece is cut once more along tensor dim `dim`, over the last axis of `outer`, and
  // replicated over the others: a sharding over the axes of `outer`, then this one's. Both meshes must be slices of
  // one. Throws DistError.
  Sharding cut_again(const DeviceMesh& outer, std::int64_t dim) const;
};

}  // namespace titan::dist
