// Checks of [lora] between its keys, and with those of other tables.
#pragma once

#include <vector>

#include "config/job_config.h"
#include "config/keys/source.h"

namespace titan::config {

// Finds keys of [lora] that would have no effect, and what adapters cannot be combined with.
std::vector<Fault> find_wrong_lora(const JobConfig& config);

}  // namespace titan::config
