// Says that the dtype of a run is slow on this processor.
#pragma once

#include <string>

#include "config/job_config.h"

namespace titan::train {

// Returns one line: that training.mixed_precision_param is slow on this processor, and what to set. Empty where it is not
// slow. For runs on CPU, after the code was chosen (kernels/choice.h).
std::string slow_products_warning(const config::JobConfig& config);

}  // namespace titan::train
