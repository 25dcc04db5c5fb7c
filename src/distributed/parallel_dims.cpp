#include "distributed/parallel_dims.h"

#include <utility>
#include <vector>

#include "base/text.h"
#include "config/validate.h"

namespace titan::dist {

ParallelDims ParallelDims::from_config(const config::Parallelism& parallelism, int world_size) {
  return {.pp = static_cast<int>(parallelism.pipeline_parallel_degree),
          .dp_replicate = static_cast<int>(parallelism.data_parallel_replicate_degree),
          .dp_shard = static_cast<int>(config::resolve_shard_degree(parallelism, world_size)),
          .cp = static_cast<int>(parallelism.context_parallel_degree),
          .tp = static_cast<int>(parallelism.tensor_parallel_degree),
          .world_size = world_size};
}

std::string ParallelDims::text() const {
  std::vector<std::string> parts;
  for (const auto& [name, degree] :
       {std::pair{"pp", pp}, {"dp_replicate", dp_replicate}, {"dp_shard", dp_shard}, {"cp", cp}, {"tp", tp}})
    if (degree > 1) parts.push_back(std::string(name) + " " + std::to_string(degree));
  return join(parts, " x ");
}

Meshes Meshes::build(World& world, const ParallelDims& dims) {
  const auto all = DeviceMesh::layout(world, {dims.pp, dims.dp_replicate, dims.dp_shard, dims.cp, dims.tp},
                                      {"pp", "dp_replicate", "dp_shard", "cp", "tp"});
  // The first mesh of some ranks names their group in reports: rather these than a flat one with the same ranks.
  const auto pp = all.slice({"pp"});
  const auto cp = all.slice({"cp"});
  const auto replicate = all.slice({"dp_replicate"});
  const auto fsdp = all.flatten({"dp_shard", "cp"}, "fsdp");
  Meshes meshes{.batch = all.flatten({"dp_replicate", "dp_shard"}, "batch"),
                .loss = all.flatten({"pp", "dp_replicate", "dp_shard", "cp"}, "loss"),
                .same_stage = all.flatten({"dp_replicate", "dp_shard", "cp"}, "same_stage"),
                .rows = all.flatten({"pp", "cp"}, "rows"),
                .fsdp = dims.dp_replicate > 1 ? DeviceMesh::concatenate(replicate, fsdp) : fsdp,
                .cp = cp,
                .tp = all.slice({"tp"}),
                .pp = pp};
  for (const DeviceMesh* mesh : {&meshes.fsdp, &meshes.cp, &meshes.tp, &meshes.pp}) mesh->connect_accelerators();
  return meshes;
}

RunShape RunShape::of(const config::JobConfig& config, int world_size) {
  RunShape shape;
  shape.dims = ParallelDims::from_config(config.parallelism, world_size);
  shape.accumulation_steps = config::num_accumulation_steps(config, world_size);
  shape.sequences_per_step = shape.accumulation_steps * config.training.local_batch_size * shape.dims.batch();
  return shape;
}

}  // namespace titan::dist
