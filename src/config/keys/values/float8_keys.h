// Checks of model.converters and [quantize.linear.float8].
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/job_config.h"
#include "config/keys/source.h"

namespace titan::config {

// The entry of filter_fqns that stands for layers that are too small to gain by float8.
inline constexpr std::string_view kAutoFilter = "auto_filter_small_kn";

// True if model.converters names float8: "quantize.linear.float8", as in TorchTitan 0.2, or "float8", as before it.
bool uses_float8(const JobConfig& config);

// Finds converters that do not exist, and what float8 cannot be combined with.
std::vector<Fault> find_wrong_converters(const JobConfig& config);
// Returns what float8 makes of other keys without an error.
std::vector<std::string> warnings_of_converters(const JobConfig& config);

}  // namespace titan::config
