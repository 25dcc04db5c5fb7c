#include "distributed/parallel_dims.h"

#include "config/validate.h"

namespace titan::dist {

ParallelDims ParallelDims::from_config(const config::Parallelism& parallelism, int world_size) {
  ParallelDims dims;
  dims.world_size = world_size;
  dims.dp_replicate = static_cast<int>(parallelism.data_parallel_replicate_degree);
  dims.dp_shard = static_cast<int>(config::resolve_shard_degree(parallelism, world_size));
  return dims;
}

Meshes Meshes::build(World& world, const ParallelDims& dims) {
  auto data = DeviceMesh::init(world, {dims.dp_replicate, dims.dp_shard}, {"dp_replicate", "fsdp"});
  auto batch = data.flatten({"dp_replicate", "fsdp"}, "batch");
  auto fsdp = dims.dp_replicate > 1 ? data : data.slice({"fsdp"});
  return {std::move(data), std::move(batch), std::move(fsdp)};
}

}  // namespace titan::dist
