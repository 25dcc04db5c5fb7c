// profiling.enable_memory_snapshot: writes the contents and the allocation history of a GPU's memory, in PyTorch's
// format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "config/job_config.h"
#include "distributed/world.h"
#include "train/step/step_guest.h"

namespace titan::train {

// Writes <dump_folder>/<save_memory_snapshot_folder>/iteration_N/rankR_memory_snapshot.pickle every profile_freq
// steps, on the ranks of profiling.ranks, and iteration_N_exit if the device runs out of memory in the step after N,
// as TorchTitan does. pytorch.org/memory_viz shows them. Not collective.
class MemorySnapshots : public StepGuest {
 public:
  // Requires a GPU. `config` must outlive this.
  MemorySnapshots(const config::JobConfig& config, const dist::World& world);

  Verdict after_step(const StepView& step) override;

 private:
  const config::JobConfig& config_;
  bool is_watched_;  // this rank
  std::int64_t rank_;
};

}  // namespace titan::train
