// The device that a run is planned for: one that is present, or one that --device names.
#pragma once

#include <cstdint>
#include <string>

#include "config/job_config.h"

namespace titan::train {

// A device, with the memory that one rank may use.
struct Device {
  std::string name;
  std::int64_t bytes = 0;
  bool has_bfloat16 = true;
  bool is_gpu = true;  // else a machine that trains on its CPUs
  bool has_float8 = true;
};

// Returns the device that `text` names: a model ("H100", "NVIDIA A100-40GB", "h200") or an amount of memory ("24GiB",
// "80 GB"). A model has the memory that its driver reports, a few percent less than advertised (H100: 79.1 GiB).
// Throws ConfigError, with the known names, for any other text.
Device named_device(const std::string& text);

// Returns a device with the dtypes of its model; of an unknown model, it has all.
Device device_of_model(const std::string& name, std::int64_t bytes);

// Throws ConfigError, naming the key, if the configuration computes in bfloat16 or float8 and the device does not.
void check_dtypes(const config::JobConfig& config, const Device& device);

}  // namespace titan::train
