#include "apps/train/run_dry.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/error.h"
#include "distributed/device.h"
#include "train/dry_run/dry_run.h"

namespace titan {

train::Device device_of_a_rank(const config::JobConfig& config, std::int64_t local_ranks) {
  if (config.training.device != "cpu" && dist::load_accelerator_module().empty()) {
    const auto* gpu = dist::accelerator();
    const std::string name = gpu->device_name(0);
    return {name, static_cast<std::int64_t>(gpu->device_capacity_bytes(0)), train::has_bfloat16(name)};
  }
  const std::int64_t host = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  return {"this machine's memory, " + std::to_string(local_ranks) + " rank(s) on it", host / local_ranks,
          /*has_bfloat16=*/true, /*is_gpu=*/false};
}

int run_dry(const config::CommandLine& command_line, CheckedInput& input, std::int64_t world_size,
            const LaunchEnv& env) {
  // What a dry run tells is true wherever it is asked; a start, though, needs files.
  for (const auto& error : env.rank == 0 ? missing_files(input) : std::vector<std::string>())
    std::fprintf(stderr, "warning: a start here would be refused: %s\n", error.c_str());
  const auto& config = input.config;
  const auto device = command_line.device
                          ? train::named_device(*command_line.device)
                          : device_of_a_rank(config, std::max(env.local_world_size, command_line.nproc.value_or(1)));
  train::check_dtypes(config, device);
  const auto run = train::dry_run(config, input.spec, static_cast<int>(world_size), device);
  std::fputs((command_line.json ? train::to_json(run) : train::to_table(run)).c_str(), stdout);
  return command_line.device && !run.demand.fits() ? kExitFailed : kExitDone;
}

}  // namespace titan
