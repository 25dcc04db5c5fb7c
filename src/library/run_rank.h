// Runs main() of a program whose processes are the ranks of a job, started by torchrun, mpirun, srun or alone.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <functional>
#include <optional>

#include "distributed/world.h"

namespace titan {

struct RankOptions {
  // Unset: CUDA if there is a GPU, else CPU; a GPU that this build cannot use is an error. With CUDA, local rank N
  // takes GPU N.
  std::optional<c10::DeviceType> device_type = std::nullopt;
  // Time limit for the ranks to meet, and for each of their collectives (World::set_timeout changes the second).
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  // True if ATen's attention and 16-bit matrix products on the CPU are replaced by faster ones of the same accuracy,
  // and the layers of nn/layers.h take fewer passes there, as in the program titan-train.
  bool own_kernels = true;
};

// Meets the other ranks, calls `body` and returns the exit code for main(). If `body` throws on one rank, all ranks
// end: that rank prints what it threw and gets its Error::exit_code() (1 for other exceptions); the processes of the
// others end here, with exit code 3 and without running destructors. Divides this machine's processors among its ranks
// unless OMP_NUM_THREADS is set; torchrun sets it to 1 if it starts several. Collective. Throws InternalError if called
// twice in a process; call it from main(), before anything else of torch.
int run_rank(const std::function<void(dist::World& world)>& body, const RankOptions& options = {});

}  // namespace titan
