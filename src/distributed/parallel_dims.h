// The parallel degrees of a run, checked against the number of ranks, the meshes made from them (TorchTitan's
// ParallelDims: row-major, pipeline outermost, tensor innermost), and the resulting sizes of a step.
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
  int tp = 1;            // ranks that share each matmul
  int world_size = 1;

  // Resolves -1 and checks the product. Throws ConfigError naming every factor.
  static ParallelDims from_config(const config::Parallelism& parallelism, int world_size);

  int batch() const { return dp_replicate * dp_shard; }  // ranks that read different data
  int ranks_of_batch() const { return cp * tp * pp; }    // ranks that read the same

  // Returns the degrees above 1, outermost first: "dp_shard 2 x tp 2"; empty if all are 1.
  std::string text() const;
};

// Views of one grid (pp, dp_replicate, dp_shard, cp, tp) over all ranks. A view of one rank, from an axis of degree
// 1, has no connections and communicates nothing.
struct Meshes {
  DeviceMesh batch;  // (batch) = dp_replicate x dp_shard: ranks that read different data. Ranks along cp, tp and pp
                     // read the same rows, so counts of rows read are summed over this
  DeviceMesh loss;   // (loss) = pp x batch x cp: for sums of what each rank computes of the loss
  DeviceMesh same_stage;  // (same_stage) = batch x cp: ranks that have the same part of the model along pp and tp
  DeviceMesh rows;        // (rows) = pp x cp: ranks that have parts of the same rows' loss
  DeviceMesh fsdp;        // for fully_shard: (fsdp) = dp_shard x cp, or (dp_replicate, fsdp) when dp_replicate > 1
  DeviceMesh cp;
  DeviceMesh tp;
  DeviceMesh pp;

  // Connects accelerators along fsdp, cp, tp and pp, whose tensors are on the device. The groups of the other meshes,
  // which mostly exchange host tensors, connect theirs if one on the device comes. Collective over the world. Throws
  // DistError when the product of the degrees is not its size.
  static Meshes build(World& world, const ParallelDims& dims);
};

// The sizes of a step, from the configuration and the number of ranks.
struct RunShape {
  ParallelDims dims;
  std::int64_t accumulation_steps = 1;  // microbatches that each rank runs for one step
  std::int64_t sequences_per_step = 1;  // over all ranks

  // Throws ConfigError if the degrees do not multiply to `world_size` or the global batch does not divide.
  static RunShape of(const config::JobConfig& config, int world_size);
};

}  // namespace titan::dist
