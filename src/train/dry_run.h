// What a run would hold, on paper: nothing is allocated, no rank is started.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/job_config.h"
#include "contract/train_spec.h"

namespace titan::train {

// The memory that one rank may use.
struct Device {
  std::string name;
  std::int64_t bytes = 0;
  bool has_bfloat16 = true;
  bool is_gpu = true;  // else this program's CPU kernels run
};

// What a peak of tensors may take of a device: the rest is for libraries, workspaces and fragmentation.
inline constexpr double kUsablePart = 0.9;

// A table of parameters, FLOPs a token and bytes a rank by kind, with the predicted peak (memory_estimate.h), for
// `world_size` ranks; and whether that fits `device`. Throws ConfigError where the degrees do not fit.
std::string dry_run(const config::JobConfig& config, const TrainSpec& spec, int world_size,
                    std::optional<Device> device = std::nullopt);

}  // namespace titan::train
