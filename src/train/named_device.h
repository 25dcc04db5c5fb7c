// What is known of devices by their names, also of those that one does not have.
#pragma once

#include <string>

#include "train/dry_run.h"

namespace titan::train {

// A model by its name with the vendor's figure for its memory (10^9 bytes a GB; what a driver reports may differ by a
// percent or two): "H100", "NVIDIA A100-40GB", "h200". Or an amount: "24GiB", "80 GB". Throws ConfigError for anything
// else, with the names that are known.
Device named_device(const std::string& text);

// False for the models that are known to be older than the format.
bool has_bfloat16(const std::string& device_name);

// Throws ConfigError, naming the key, when the configuration computes in bfloat16 and the device does not.
void check_dtypes(const config::JobConfig& config, const Device& device);

}  // namespace titan::train
