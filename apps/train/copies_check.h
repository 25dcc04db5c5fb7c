// Checks before a start whether copies of the state in memory (checkpoint.memory_interval) can be made here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/env.h"
#include "config/job_config.h"
#include "config/keys/source.h"
#include "contract/train_contract.h"

namespace titan {

// Returns why the job can have no copies in memory, whatever room there is: it has several machines, or
// checkpoint.memory_folder is not in memory. nullopt if it can, or asks for none.
std::optional<config::Fault> find_no_copies(const config::JobConfig& config, const LaunchEnv& launch);

// Returns what is wrong if two copies, the one and the next, have no room in checkpoint.memory_folder. Copies that the
// run has already count as room. `free_bytes`: memory of this machine that the run may use.
std::optional<config::Fault> find_lack_for_copies(const config::JobConfig& config, const TrainSpec& spec,
                                                  std::int64_t free_bytes);

}  // namespace titan
