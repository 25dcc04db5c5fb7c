// `titan-train supervise`: starts the command of another launcher (mpirun, srun) again after the run has failed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace titan {

// Runs `command`, which starts titan-train with a job that saves checkpoints, and again after a failure, at most
// `max_restarts` times. Returns the exit code of its last start. Call it before any thread is started, after
// install_signal_handlers(). Throws ConfigError if no word of the command is titan-train, or if its job is wrong or
// saves nothing.
int supervise_command(const std::vector<std::string>& command, std::int64_t max_restarts);

}  // namespace titan
