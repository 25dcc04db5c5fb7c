// Checks of this machine and of the limits it sets for this process. Nothing here is collective or slow.
#pragma once

#include <c10/core/DeviceType.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "apps/doctor/check.h"
#include "base/env.h"
#include "base/process/memory.h"

namespace titan::doctor {

// Runs all checks but check_threads(), for one rank of `launch` that would train on `device_type`. Call it after
// choose_cpu_code(). Free memory changes from moment to moment, so only one rank per machine checks it.
Checks check_machine(const LaunchEnv& launch, c10::DeviceType device_type);

// The single checks, as functions of plain values:

// `cpuinfo`: the text of /proc/cpuinfo.
Check check_cpu(std::string_view cpuinfo);
// Compares the threads of this host's `ranks`, `threads` each, with the `cores` that any of them may use. Ranks that
// `have_gpus` cannot be fewer. Call it after the ranks have met.
Check check_threads(std::int64_t cores, std::int64_t threads, std::int64_t ranks, bool have_gpus);
// `free`: memory for all `ranks` on this machine together.
Check check_memory(const FreeMemory& free, std::int64_t ranks);
// `limit`: RLIMIT_NOFILE. Every rank has connections to the others, and files of checkpoints and data.
Check check_open_files(std::int64_t limit, std::int64_t world_size);
// `bytes`: size of /dev/shm, -1 if it does not exist. Only NCCL uses it; CPU ranks share memory without a folder.
Check check_shared_memory(std::int64_t bytes, bool uses_nccl, std::int64_t ranks);
// `bytes`: RLIMIT_MEMLOCK, -1: no limit.
Check check_locked_memory(std::int64_t bytes, bool has_infiniband);

}  // namespace titan::doctor
