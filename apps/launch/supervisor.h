// Starts the ranks of a run again after they have failed: --nproc with --max-restarts, and `titan-train supervise` for
// other launchers. The ranks go on from the newest intact checkpoint by themselves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "apps/launch/launch_local.h"
#include "apps/launch/restart_policy.h"
#include "config/command_line/command_line.h"
#include "config/job_config.h"

namespace titan {

// Throws ConfigError if the flags --max-restarts and --min-nproc of `command_line`, which also has --nproc, do not fit
// its configuration.
void check_restarts(const config::CommandLine& command_line, const config::JobConfig& config);

// Throws ConfigError if a run of this configuration saves nothing that a later start could go on from.
void check_saves(std::int64_t max_restarts, const config::JobConfig& config);

// Returns the arguments of titan-train for a restart. It goes on from the newest checkpoint, which --overwrite refuses
// to do; where there is none, the rows of the earlier starts must be written over (`may_overwrite`).
std::vector<std::string> arguments_of_restart(std::vector<std::string> args, bool may_overwrite);

// Describes a run for supervise().
struct Supervised {
  std::int64_t ranks = 1;  // 0: another launcher knows how many
  RestartLimits limits = {};
  std::filesystem::path folder = {};       // job.dump_folder
  std::filesystem::path checkpoints = {};  // where the run saves
  bool has_memory_copies = false;          // a start may go on from a newer step than that of the newest checkpoint
  bool overwrites = false;                 // the first start has --overwrite
  bool uses_gpus = false;
  // Starts so many ranks, and waits until they have ended. `start`: its number, from 1. `may_overwrite`: there is no
  // checkpoint, and what else is there is of an earlier start or may be written over by --overwrite.
  std::function<RanksEnd(std::int64_t ranks, std::int64_t start, bool may_overwrite)> run = {};
  // Returns why the run cannot have so many ranks now, on this machine or at all; empty if it can.
  std::function<std::string(std::int64_t ranks)> why_not = {};
};

// Starts the ranks of a run, again as long as decide() says, and says on standard error what it does. Returns the exit
// code of the last start; 128 + signal if a signal ended the wait for the next one.
int supervise(const Supervised& run);

// Runs --nproc with --max-restarts. `args`: of the program. Call it before any thread is started.
int supervise_local(const std::vector<std::string>& args, const config::CommandLine& command_line,
                    const config::JobConfig& config);

}  // namespace titan
