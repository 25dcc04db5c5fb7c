// Runs main() of a program whose processes are the ranks of a job, started by torchrun, mpirun, srun or alone.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <functional>
#include <optional>

#include "distributed/world.h"

namespace titan {

struct RankOptions {
  // Unset: CUDA if there is a GPU and a driver that this build can use, else CPU. With CUDA, local rank N takes GPU N.
  std::optional<c10::DeviceType> device_type = std::nullopt;
  // Time limit for the ranks to meet, and for each of their collectives (World::set_timeout changes the second).
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  // True if ATen's attention and 16-bit matrix products on the CPU are replaced by faster ones of the same accuracy,
  // and the layers of nn/layers.h take fewer passes there, as in the program titan-train.
  bool own_kernels = true;
};

// Meets the other ranks, calls `body` and returns the exit code for main(). If `body` throws on one rank, all ranks
// end: that rank prints what it threw and returns 1 (2 for a ConfigError), the others name it and end with 3. Divides
// this machine's processors among its ranks unless OMP_NUM_THREADS is set. Call it once per process, from main(),
// before anything else of torch. Collective.
int run_rank(const std::function<void(dist::World& world)>& body, const RankOptions& options = {});

}  // namespace titan
