#include "apps/train/dry_run_command.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "apps/common/print_result.h"
#include "apps/launch/world_size.h"
#include "apps/train/checked_input.h"
#include "apps/train/pick_device.h"
#include "base/error.h"
#include "base/process/speaks.h"
#include "config/keys/datasets.h"
#include "data/dataset_kinds.h"
#include "train/dry_run/dry_run.h"

namespace titan {
namespace {

void warn_of_refusal(const std::string& reason) {
  std::fprintf(stderr, "warning: a start here would be refused: %s\n", reason.c_str());
}

// Warns of missing files, which a run needs and a dry run does not.
void warn_of_missing_files(const CheckedConfig& checked) {
  for (const auto& error : missing_files(checked)) warn_of_refusal(error);
}

// Refuses dtypes that the device of the plan does not have. If --device names none, the plan may be for another
// machine.
void check_dtypes_of_plan(const config::JobConfig& config, const train::Device& device, bool is_named, bool speaks) {
  try {
    train::check_dtypes(config, device);
  } catch (const ConfigError& error) {
    if (is_named) throw;
    if (speaks) warn_of_refusal(error.what());
  }
}

// Prepares large data as a first start would, after all other output. Missing data was reported before.
void prepare_data(const config::JobConfig& config) {
  spdlog::set_level(spdlog::level::info);  // it may take a while
  for (const config::NamedDataset& dataset : config::named_datasets(config)) {
    try {
      data::prepare_dataset(dataset.kind, dataset.path);
    } catch (const std::exception&) {
      continue;
    }
  }
}

}  // namespace

int run_dry(const config::CommandLine& command_line, const LaunchEnv& launch) {
  const CheckedConfig checked = check_to_print(command_line, launch);
  if (speaks_for_job(launch)) warn_of_missing_files(checked);
  const auto device =
      command_line.device
          ? train::named_device(*command_line.device)
          : device_of_a_rank(checked.config, std::max(launch.local_world_size, command_line.nproc.value_or(1)));
  check_dtypes_of_plan(checked.config, device, command_line.device.has_value(), speaks_for_job(launch));
  const auto world_size = static_cast<int>(planned_world_size(command_line, launch));
  const auto run = train::dry_run(checked.config, checked.spec, world_size, device);
  print_result(command_line.json ? train::to_json(run) : train::to_table(run));
  const bool is_of_this_machine = !command_line.device && !command_line.json;
  if (speaks_for_job(launch) && is_of_this_machine) prepare_data(checked.config);
  return command_line.device && !run.demand.fits() ? kExitFailed : kExitDone;
}

}  // namespace titan
