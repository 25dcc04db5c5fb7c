#include "apps/train/checked_config.h"

#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "apps/launch/world_size.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process/speaks.h"
#include "config/load.h"
#include "models/common/wrap_groups.h"
#include "models/registry.h"
#include "train/step/run_parameters.h"

namespace titan {
namespace {

config::LoadedConfig load(const config::CommandLine& command_line, const LaunchEnv& launch) {
  return config::load_job_config(command_line, planned_world_size(command_line, launch));
}

// Throws ConfigError if a pattern of [optimizer] matches no parameter of the model.
void check_groups(const config::Optimizer& options, const TrainSpec& spec) {
  if (options.no_decay.empty() && options.lr_factors.empty()) return;
  const auto model = spec.build_model(std::nullopt);  // on the meta device
  train::group_lines(options, train::RunParameters(*model));
}

CheckedConfig check_model(config::LoadedConfig loaded) {
  CheckedConfig checked{
      std::move(loaded.config), std::move(loaded.warnings), std::move(loaded.notes), std::move(loaded.origins), {}};
  const config::JobConfig& config = checked.config;
  std::vector<std::string> errors;
  const auto check = [&](const std::function<void()>& part) {
    try {
      part();
    } catch (const ConfigError& error) {
      errors.push_back(config::with_location(error, checked.origins));
    }
  };
  check([&] { checked.spec = models::make_train_spec(config.model, config.lora, config.training.seq_len); });
  config::throw_if_wrong(errors);
  check([&] { models::check_wrap(checked.spec, config.parallelism); });
  check([&] { check_groups(config.optimizer, checked.spec); });
  config::throw_if_wrong(errors);
  return checked;
}

// True if this rank shows its log: --log-rank names it or, without the flag, it is rank 0. Throws ConfigError if the
// flag names a rank that does not exist.
bool log_is_shown(const config::CommandLine& command_line, const LaunchEnv& launch) {
  if (!command_line.log_ranks) return launch.rank == 0;
  if (const auto highest = command_line.log_ranks->highest(); highest >= launch.world_size)
    throw ConfigError(
        "error: --log-rank names rank " + std::to_string(highest) + "; this run has " +
        (launch.world_size == 1 ? "rank 0 alone" : "ranks 0 to " + std::to_string(launch.world_size - 1)));
  return command_line.log_ranks->contains(launch.rank);
}

}  // namespace

CheckedConfig check_to_train(const config::CommandLine& command_line, const LaunchEnv& launch) {
  return report_once(speaks_for_job(launch), [&] {
    config::LoadedConfig loaded = load(command_line, launch);
    // The log comes first, since checking the model may warn.
    init_log(static_cast<int>(launch.rank), static_cast<int>(launch.world_size),
             !loaded.config.metrics.disable_color_printing, log_is_shown(command_line, launch));
    return check_model(std::move(loaded));
  });
}

CheckedConfig check_to_print(const config::CommandLine& command_line, const LaunchEnv& launch) {
  log_to_stderr("titan-train");
  CheckedConfig checked = report_once(speaks_for_job(launch), [&] { return check_model(load(command_line, launch)); });
  if (!speaks_for_job(launch)) return checked;
  for (const auto& warning : checked.warnings) std::fprintf(stderr, "warning: %s\n", warning.c_str());
  for (const auto& note : checked.notes) std::fprintf(stderr, "note: %s\n", note.c_str());
  return checked;
}

}  // namespace titan
