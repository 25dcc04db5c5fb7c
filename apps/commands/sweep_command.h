// `titan-train sweep SWEEP.toml`: many runs of one job, with different values. See docs/sweeps.md.
#pragma once

#include <string>
#include <vector>

namespace titan {

// `args` is what follows "sweep". Gives the exit code. Throws ConfigError for a wrong command line or sweep.
int run_sweep_command(const std::vector<std::string>& args);

}  // namespace titan
