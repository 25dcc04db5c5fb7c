// Devices that one does not have, for a dry run.
#pragma once

#include <string>

#include "train/dry_run.h"

namespace titan::train {

// A model by its name with the vendor's figure for its memory (10^9 bytes a GB; what a driver reports may differ by a
// percent or two): "H100", "NVIDIA A100-40GB", "h200". Or an amount: "24GiB", "80 GB". Throws ConfigError for anything
// else, with the names that are known.
Device named_device(const std::string& text);

}  // namespace titan::train
