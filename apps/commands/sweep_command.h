// `titan-train sweep SWEEP.toml` runs one job many times with different values. See docs/sweeps.md.
#pragma once

#include <string>
#include <vector>

namespace titan {

// `args` are the words after "sweep". Returns the exit code. Throws ConfigError for a wrong command line or sweep.
int run_sweep_command(const std::vector<std::string>& args);

}  // namespace titan
