// The parallel degrees of a run, checked against the number of ranks, the meshes made from them (TorchTitan's
// ParallelDims: row-major, pipeline outermost, tensor innermost), and the sizes of a step that follow.
#pragma once

#include <cstdint>
#include <string>

#include "config/job_config.h"
#include "distributed/mesh.h"

namespace titan::dist {

// One degree per axis, outermost first. Their product is world_size.
struct ParallelDims {
  int pp = 1;            // ranks that share the stack of layers
  int dp_replicate = 1;  // copies of the weights
  int dp_shard = 1;      // ranks that share one copy
  int cp = 1;            // ranks that share each sequence
  int tp = 1;            // ranks that share each matrix product
  int world_size = 1;

  // Resolves -1 and checks the product. Throws ConfigError naming every factor.
  static ParallelDims from_config(const config::Parallelism& parallelism, int world_size);

  int batch() const { return dp_replicate * dp_shard; }  // ranks that read different data
  int ranks_of_batch() const { return cp * tp * pp; }    // ranks that read the same

  // "dp_shard 2 x tp 2": the degrees above 1, outermost first; empty where there is none.
  std::string text() const;
};

// Views of one grid (pp, dp_replicate, dp_shard, cp, tp) over all ranks. A view of one rank, which is what an axis of
// degree 1 gives, has no connection and communicates nothing.
struct Meshes {
  DeviceMesh batch;  // (batch) = dp_replicate x dp_shard: who reads which data. The ranks along cp, tp and pp read the
                     // same rows, so that what is counted on rows as read is summed over this
  DeviceMesh loss;   // (loss) = batch x cp: over whom sums run of what each rank computes from its part of the rows
  DeviceMesh fsdp;   // what fully_shard gets: (fsdp) = dp_shard x cp, or (dp_replicate, fsdp) when dp_replicate > 1
  DeviceMesh cp;
  DeviceMesh tp;
  DeviceMesh pp;

  // Collective over the world. Throws DistError when the product of the degrees is not its size.
  static Meshes build(World& world, const ParallelDims& dims);
};

// What the configuration and the number of ranks mean for a step.
struct RunShape {
  ParallelDims dims;
  std::int64_t accumulation_steps = 1;  // microbatches that each rank runs for one step
  std::int64_t sequences_per_step = 1;  // of all ranks together

  // Throws ConfigError where the degrees do not multiply to `world_size` or the global batch does not divide.
  static RunShape of(const config::JobConfig& config, int world_size);
};

}  // namespace titan::dist
