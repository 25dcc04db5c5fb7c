#include "apps/train/train_command.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/train/check_same_config.h"
#include "apps/train/checked_input.h"
#include "apps/train/copies_check.h"
#include "apps/train/open_data.h"
#include "apps/train/pick_device.h"
#include "apps/train/preflight.h"
#include "apps/train/training_end.h"
#include "base/error.h"
#include "base/process/speaks.h"
#include "base/text.h"
#include "config/keys/source.h"
#include "distributed/device.h"
#include "distributed/flight/dump.h"
#include "distributed/flight/flight_recorder.h"
#include "distributed/flight/slow_phase.h"
#include "distributed/parallel_dims.h"
#include "distributed/world.h"
#include "kernels/memory/host_arena.h"
#include "library/code_choice.h"
#include "library/run_or_report.h"
#include "train/build_model.h"
#include "train/run_folder.h"
#include "train/setup.h"
#include "train/slow_products.h"
#include "train/trainer.h"

namespace titan {
namespace {

// State of a rank before it meets the others.
struct Start {
  CheckedInput input;
  std::vector<std::string> warnings, notes;
  c10::DeviceType device_type;
  std::exception_ptr failure = nullptr;  // thrown once the ranks have met, so that the others hear of it at once
};

// Runs a check of this rank alone. Throws bad input, for which all ranks are ended. Keeps any other error in `failure`.
template <typename Check>
void check_alone(std::exception_ptr& failure, Check&& check) {
  try {
    check();
  } catch (const Error& error) {
    if (error.exit_code() == kExitBadInput) throw;
    failure = std::current_exception();
  } catch (...) {
    failure = std::current_exception();
  }
}

// Checks files and memory once per machine. If only one rank lacks a file, that shows after the ranks have met, and
// all ranks are told.
Start check_machine(const CheckedConfig& checked, const config::CommandLine& command_line, const LaunchEnv& launch) {
  const bool speaks = speaks_for_machine(launch);
  return report_once(speaks, [&] {
    const auto device_type = pick_device_type(checked.config, launch);
    if (const auto no_copies = find_no_copies(checked.config, launch))
      throw ConfigError(config::with_location(*no_copies, checked.origins));
    Start start{speaks ? check_files(checked) : load_tokenizer(checked), checked.warnings, checked.notes, device_type};
    if (auto slow = train::slow_products_warning(checked.config, device_type); !slow.empty())
      start.warnings.push_back(std::move(slow));
    if (speaks)
      for (auto& doubt : doubtful_data(checked.config)) start.warnings.push_back(std::move(doubt));
    check_alone(start.failure, [&] {
      if (speaks && !command_line.no_preflight)
        for (auto& warning : check_room(checked, launch, device_type)) start.warnings.push_back(std::move(warning));
      if (!speaks && device_type != c10::DeviceType::CPU && !command_line.no_preflight)
        check_own_device(checked, launch);
      if (speaks_for_job(launch)) check_folder(checked, command_line.overwrite);
    });
    return start;
  });
}

void log_start(const Start& start, const LaunchEnv& launch) {
  if (speaks_for_job(launch)) {
    for (const auto& warning : start.warnings) spdlog::warn(warning);
    for (const auto& note : start.notes) spdlog::info(note);
  }
  if (start.device_type != c10::DeviceType::CPU || start.input.config.training.device == "cpu") return;
  const auto level = dist::has_cuda_device() ? spdlog::level::warn : spdlog::level::info;
  spdlog::log(level, "training on CPU: {}", dist::load_accelerator_module());
}

// Configures the flight recorder and its dump file.
void set_up_flight_recorder(const config::JobConfig& config, std::int64_t rank) {
  const config::Comm& comm = config.comm;
  dist::flight_recorder().resize(static_cast<std::size_t>(comm.trace_buf_size));
  if (comm.trace_buf_size == 0) return;
  dist::set_dump_file(std::filesystem::path(config.job.dump_folder) / comm.save_traces_folder /
                      (comm.save_traces_file_prefix + std::to_string(rank)));
}

// Turns on c10d's own recorder for NCCL through its variables, which must be set before it is first used; values that
// the user set are kept. Its files are binary, for torchfrtrace.
void set_up_device_recorder(const config::JobConfig& config) {
  const config::Comm& comm = config.comm;
  setenv("TORCH_FR_BUFFER_SIZE", std::to_string(comm.trace_buf_size).c_str(), /*overwrite=*/0);
  if (comm.trace_buf_size == 0) return;
  const auto folder = std::filesystem::path(config.job.dump_folder) / comm.save_traces_folder;
  std::error_code ignored;  // c10d reports that it cannot write there
  std::filesystem::create_directories(folder, ignored);
  setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "1", /*overwrite=*/0);
  const std::string start = (folder / ("nccl_" + comm.save_traces_file_prefix)).string();
  for (const char* name : {"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"})
    setenv(name, start.c_str(), /*overwrite=*/0);
}

void warn_of_slow_phase(const std::string& what) {
  const auto file = dist::dump_file();
  dist::start_dump("this rank " + what);
  spdlog::warn("[dist] this rank {}{}", what,
               file.empty() ? "" : "; where its threads stand is written to " + file.string());
}

void log_host_memory() {
  if (const auto arena = kernels::host_arena_stats(); arena.peak_in_use > 0)
    spdlog::info("tensors of this rank took at most {} on the host",
                 format_bytes(static_cast<double>(arena.peak_in_use)));
}

std::shared_ptr<train::CheckpointFolderLock> lock_checkpoints(const CheckedInput& input) {
  try {
    return train::lock_checkpoint_folder(input.config);
  } catch (const ConfigError& error) {
    throw ConfigError(config::with_location(error, input.origins));
  }
}

// Trains after the ranks have met. Returns the exit code.
int train_together(const CheckedInput& input, dist::World& world) {
  const auto& config = input.config;
  check_same_config(config, input.tokenizer_facts.chat_template, world);
  train::share_processors(world);
  const std::shared_ptr<const FileLock> lock =
      world.rank() == 0 ? train::lock_run_folder(config.job.dump_folder) : nullptr;
  const auto checkpoint_lock = world.rank() == 0 ? lock_checkpoints(input) : nullptr;
  const auto shape = dist::RunShape::of(config, world.size());
  const auto meshes = train::connect_meshes(world, shape.dims, config.training);
  auto training_set = open_training_set(input, meshes.batch, world, shape);
  auto run = train::build_run({.config = config,
                               .world = world,
                               .meshes = meshes,
                               .spec = input.spec,
                               .tokenizer = input.tokenizer_facts,
                               .data = std::move(training_set),
                               .held_out = open_held_out_set(input, meshes.batch),
                               .prompts = input.prompts,
                               .tasks = open_evaluation_tasks(input),
                               .data_facts = facts_of_data(input, world),
                               .folder_lock = lock,
                               .checkpoint_lock = checkpoint_lock});
  const auto end = train_to_the_end(std::make_unique<train::Trainer>(std::move(run)));
  log_host_memory();
  world.shutdown();
  return exit_code_of_end(end);
}

}  // namespace

int run_train(const config::CommandLine& command_line, const LaunchEnv& launch) {
  const CheckedConfig checked = check_to_train(command_line, launch);
  const config::JobConfig& config = checked.config;
  train::set_num_threads(launch.local_world_size);
  choose_cpu_code(config.cpu);
  const Start start = check_machine(checked, command_line, launch);
  log_start(start, launch);
  set_up_flight_recorder(config, launch.rank);
  train::set_determinism(config.debug);
  if (start.device_type != c10::DeviceType::CPU) {
    set_up_device_recorder(config);
    choose_cuda_code(config.cuda, start.device_type);
  }
  const dist::SlowPhaseWatch slow_phases(dist::SlowPhases(static_cast<double>(config.comm.init_timeout_seconds),
                                                          static_cast<double>(config.comm.train_timeout_seconds)),
                                         warn_of_slow_phase);
  auto world = report_once(speaks_for_job(launch), [&] {
    return std::make_unique<dist::World>(launch, start.device_type,
                                         std::chrono::seconds(config.comm.init_timeout_seconds));
  });
  return run_or_report(std::move(world), [&](dist::World& ranks) {
    if (start.failure) std::rethrow_exception(start.failure);
    return train_together(start.input, ranks);
  });
}

}  // namespace titan
