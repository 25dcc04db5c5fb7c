// Checks of this machine and of what it allows this process. Nothing here is collective or takes long.
#pragma once

#include <c10/core/DeviceType.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "apps/doctor/check.h"
#include "base/env.h"

namespace titan::doctor {

// All of them, for one rank of `launch` that would train on `device_type`, after its number of threads was set; what
// changes from moment to moment on one rank of each machine.
Checks check_machine(const LaunchEnv& launch, c10::DeviceType device_type);

// Of those, what decides about numbers:

// `cpuinfo`: the text of /proc/cpuinfo.
Check check_cpu(std::string_view cpuinfo);
// `threads` of each of `ranks` of this host, on the `cores` that any of them may use; after the ranks have met.
Check check_threads(std::int64_t cores, std::int64_t threads, std::int64_t ranks);
// `free_bytes`: what all of `ranks` on this machine may have.
Check check_memory(std::int64_t free_bytes, std::int64_t ranks);
// `limit`: RLIMIT_NOFILE. Every rank has connections to the others, and files of checkpoints and data.
Check check_open_files(std::int64_t limit, std::int64_t world_size);
// `bytes` of /dev/shm in all, -1: there is none. Only NCCL uses it; CPU ranks share memory that needs no folder.
Check check_shared_memory(std::int64_t bytes, bool uses_nccl, std::int64_t ranks);
// `bytes`: RLIMIT_MEMLOCK, -1: no limit.
Check check_locked_memory(std::int64_t bytes, bool has_infiniband);

}  // namespace titan::doctor
