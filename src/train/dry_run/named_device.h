// The device that a run is planned for: one that is present, or one that --device names.
#pragma once

#include <cstdint>
#include <string>

#include "config/job_config.h"

namespace titan::train {

// The memory that one rank may use.
struct Device {
  std::string name;
  std::int64_t bytes = 0;
  bool has_bfloat16 = true;
  bool is_gpu = true;  // else this program's CPU kernels run
};

// A model by its name with the memory that its driver reports, which is a few percent less than what it is sold as:
// "H100" (79.1 GiB), "NVIDIA A100-40GB", "h200". Or an amount: "24GiB", "80 GB". Throws ConfigError for anything else,
// with the names that are known.
Device named_device(const std::string& text);

// False for the models that are known to be older than the format.
bool has_bfloat16(const std::string& device_name);

// Throws ConfigError, naming the key, when the configuration computes in bfloat16 and the device does not.
void check_dtypes(const config::JobConfig& config, const Device& device);

}  // namespace titan::train
