// The parallel degrees of a run, checked against the number of ranks, and the meshes made from them (TorchTitan's
// ParallelDims: row-major, pipeline outermost, tensor innermost).
#pragma once

#include <string>

#include "config/job_config.h"
#include "distributed/mesh.h"

namespace titan::dist {

struct ParallelDims {
  int dp_replicate = 1;
  int dp_shard = 1;
  int world_size = 1;

  // Resolves -1 and checks the product. Throws ConfigError naming every factor.
  static ParallelDims from_config(const config::Parallelism& parallelism, int world_size);

  int dp() const { return dp_replicate * dp_shard; }
};

struct Meshes {
  DeviceMesh data;   // (dp_replicate, fsdp), all ranks
  DeviceMesh batch;  // both as one dim: who reads which data, and over whom losses and token counts are summed
  DeviceMesh fsdp;   // what fully_shard gets: 1-D (fsdp), or the 2-D mesh when dp_replicate > 1

  // Collective over the world.
  static Meshes build(World& world, const ParallelDims& dims);
};

}  // namespace titan::dist
