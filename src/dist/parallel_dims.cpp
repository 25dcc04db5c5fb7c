#include "dist/parallel_dims.h"

#include "base/error.h"

namespace titan::dist {

ParallelDims ParallelDims::from_config(const config::Parallelism& parallelism, int world_size) {
  ParallelDims dims;
  dims.world_size = world_size;
  dims.dp_replicate = static_cast<int>(parallelism.data_parallel_replicate_degree);
  dims.dp_shard = static_cast<int>(parallelism.data_parallel_shard_degree);
  if (dims.dp_shard == -1) dims.dp_shard = world_size / std::max(1, dims.dp_replicate);
  if (dims.dp_replicate < 1 || dims.dp_shard < 1 || dims.dp_replicate * dims.dp_shard != world_size) {
    throw ConfigError("parallelism.data_parallel_replicate_degree (" + std::to_string(parallelism.data_parallel_replicate_degree) +
                      ") * parallelism.data_parallel_shard_degree (" + std::to_string(parallelism.data_parallel_shard_degree) +
                      ") must be the number of ranks (" + std::to_string(world_size) + "); set data_parallel_shard_degree = -1 to use them all");
  }
  return dims;
}

Meshes Meshes::build(World& world, const ParallelDims& dims) {
  auto data = DeviceMesh::init(world, {dims.dp_replicate, dims.dp_shard}, {"dp_replicate", "fsdp"});
  auto batch = data.flatten({"dp_replicate", "fsdp"}, "batch");
  auto fsdp = dims.dp_replicate > 1 ? data : data.slice({"fsdp"});
  return {std::move(data), std::move(batch), std::move(fsdp)};
}

}  // namespace titan::dist
