#include "apps/train/run_train.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <regex>
#include <set>

#include "apps/commands/checkpoint_command.h"
#include "apps/train/checked_input.h"
#include "apps/train/preflight.h"
#include "apps/train/run_dry.h"
#include "base/env.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/signal.h"
#include "base/text.h"
#include "config/keys/datasets.h"
#include "config/keys/fields.h"
#include "config/keys/print.h"
#include "data/batch_loader.h"
#include "distributed/device.h"
#include "distributed/parallel_dims.h"
#include "kernels/choice.h"
#include "kernels/cpu/attention.h"
#include "kernels/memory/host_arena.h"
#include "kernels/mkl_path.h"
#include "train/dry_run/named_device.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace titan {
namespace {

// The devices that CUDA shows with CUDA_VISIBLE_DEVICES: those before the first that is none, and none of a list that
// names one twice.
std::size_t num_visible(const std::string& list) {
  std::set<std::string> names;
  for (const auto& name : split(list, ',')) {
    if (name.empty() || name.starts_with('-')) break;
    if (!names.insert(name).second) return 0;
  }
  return names.size();
}

void check_num_devices(std::size_t count, const std::string& source, const LaunchEnv& env) {
  if (count >= static_cast<std::size_t>(env.local_world_size) || get_env("TITAN_DEVICE_COMM") == "gloo") return;
  throw ConfigError("error: " + source + " gives " + std::to_string(count) + " CUDA device(s) to the " +
                    std::to_string(env.local_world_size) +
                    " ranks of this machine, and each takes one of its own; start at most that many ranks here "
                    "(TITAN_DEVICE_COMM=gloo lets ranks share a device, slowly, for tests)");
}

c10::DeviceType pick_device_type(const config::JobConfig& config, const LaunchEnv& env) {
  const std::string& wanted = config.training.device;
  if (wanted == "cpu") return c10::DeviceType::CPU;
  const auto visible = get_env("CUDA_VISIBLE_DEVICES");
  if (wanted == "cuda" && visible) check_num_devices(num_visible(*visible), "CUDA_VISIBLE_DEVICES=" + *visible, env);
  const std::string missing = dist::load_accelerator_module();
  if (missing.empty()) {
    check_num_devices(static_cast<std::size_t>(dist::accelerator()->device_count()), "this machine", env);
    train::check_dtypes(config, device_of_a_rank(config, 1));
    return c10::DeviceType::CUDA;
  }
  if (wanted == "cuda") throw ConfigError("training.device = \"cuda\", but " + missing);
  return c10::DeviceType::CPU;
}

// Memory once a machine; the disk is rank 0's, which most folders are shared with.
void check_room(CheckedInput& input, const LaunchEnv& env, c10::DeviceType device_type) {
  const auto ranks = std::max<std::int64_t>(env.local_world_size, 1);
  Capacity capacity{.bytes_of_a_rank = free_memory_bytes() / ranks};
  capacity.words = "this machine has " + format_bytes(static_cast<double>(capacity.bytes_of_a_rank * ranks)) +
                   " of free memory for " + counted(ranks, "rank");
  if (device_type != c10::DeviceType::CPU) {
    capacity.device = train::PaperDevice::kGpu;
    capacity.bytes_of_a_rank = static_cast<std::int64_t>(dist::accelerator()->device_capacity_bytes(0));
    capacity.words =
        dist::accelerator()->device_name(0) + " has " + format_bytes(static_cast<double>(capacity.bytes_of_a_rank));
  }
  std::vector<std::string> errors;
  if (const auto lack = find_lack_of_memory(input.config, input.spec, env.world_size, capacity))
    errors.push_back(config::at_its_place(*lack, input.origins));
  const auto no_disk = env.rank == 0 ? find_lack_of_disk(input.config, input.spec) : std::nullopt;
  if (no_disk && no_disk->is_certain && input.config.checkpoint.on_save_error == "stop") {
    errors.push_back(config::at_its_place(no_disk->message, input.origins));
  } else if (no_disk) {
    input.warnings.push_back(no_disk->message);
  }
  config::throw_if_wrong(errors);
}

// Whatever device trains: a few tensors are on CPU in any run. Before the first product.
void choose_cpu_code(const config::Cpu& cpu) {
  kernels::choose_mkl_path(cpu.mkl_path == "by_vendor" ? kernels::MklPath::kByVendor
                                                       : kernels::MklPath::kByInstructions);
  kernels::use_own(cpu.kernels == "own");
  if (kernels::uses_own()) kernels::install_attention();
}

// Two runs would take each other's checkpoints for their own, and remove them.
std::unique_ptr<FileLock> lock_dump_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw ConfigError("error: job.dump_folder = \"" + folder + "\" cannot be made: " + error.message() +
                      "; choose another");
  return std::make_unique<FileLock>(
      std::filesystem::path(folder) / ".run.lock",
      "error: job.dump_folder = \"" + folder +
          "\": another run writes there; wait for it, or choose another folder. Was this one process of several "
          "that mpirun or srun started? They do not know of each other: start them with torchrun or --nproc, or "
          "with the launcher of the MPI that is installed (srun: add --mpi=pmix)");
}

data::DataOptions data_options(const dist::DeviceMesh& batch_mesh) {
  data::DataOptions options;
  options.dp_rank = batch_mesh.local_rank("batch");
  options.dp_size = batch_mesh.size();
  options.pin_memory = !batch_mesh.device().is_cpu();
  return options;
}

// `table`: whose keys name the data.
std::unique_ptr<BatchSource> open_data(const std::string& table, const CheckedInput& checked,
                                       const data::DataOptions& options) {
  try {
    return data::make_batch_source(options, checked.tokenizer);
  } catch (const DataError& error) {
    const std::string key = table + (options.dataset_mix.empty() ? ".dataset_path" : ".dataset_mix");
    throw DataError(config::at_its_place(key + ": " + error.what(), checked.origins));
  } catch (const ConfigError& error) {
    throw ConfigError(config::at_its_place(error.what(), checked.origins));
  }
}

std::unique_ptr<BatchSource> open_training_set(const CheckedInput& checked, const dist::DeviceMesh& batch_mesh,
                                               const dist::World& world, const dist::RunShape& shape) {
  const auto& training = checked.config.training;
  auto options = data_options(batch_mesh);
  options.dataset = training.dataset;
  options.dataset_path = config::dataset_path(training.dataset, training.dataset_path).value_or("");
  options.dataset_mix = training.dataset_mix;
  options.data_order = training.data_order;
  options.on_bad_record = training.on_bad_record;
  options.seed = checked.config.debug.seed.value_or(0);
  options.local_batch_size = training.local_batch_size;
  options.seq_len = training.seq_len;
  options.accumulation_steps = shape.accumulation_steps;
  if (const auto log = get_env("TITAN_LOG_SAMPLES"); log && !log->empty()) {
    options.sample_log = *log + ".rank" + std::to_string(world.rank());
  }
  return open_data("training", checked, options);
}

// What Validator takes: with validation.steps above 0 this rank's batches, with -1 those of all ranks together.
std::unique_ptr<BatchSource> open_held_out(const CheckedInput& checked, const dist::DeviceMesh& batch_mesh) {
  const auto& validation = checked.config.validation;
  if (!validation.enable) return nullptr;
  const bool whole_set = validation.steps == -1;
  auto options = data_options(batch_mesh);
  options.dataset = validation.dataset;
  options.dataset_path = config::dataset_path(validation.dataset, validation.dataset_path).value_or("");
  options.local_batch_size = validation.local_batch_size * (whole_set ? batch_mesh.size() : 1);
  options.seq_len = validation.seq_len;
  options.infinite = !whole_set;
  if (whole_set) options.dp_rank = 0, options.dp_size = 1;
  return open_data("validation", checked, options);
}

// Whether a key has to have one value on all ranks: where files lie may differ between machines.
bool is_shared(const std::string& key) {
  return !key.starts_with("job.") && !key.ends_with("_path") && key != "training.dataset_mix";
}

// Ranks of different minds would wait for each other in different collectives. Collective.
void check_same_config(const config::JobConfig& config, const dist::World& world) {
  std::vector<std::string> mine;
  for (const auto& field : config::fields())
    if (is_shared(field.key)) mine.push_back(field.key + " = " + config::to_toml_value(field.get(config)));
  const auto of_rank_0 = split(world.group().broadcast_bytes(join(mine, "\n"), 0), '\n');
  const std::string self = "rank " + std::to_string(world.rank());
  if (mine.size() != of_rank_0.size()) throw ConfigError("error: " + self + " runs another titan-train than rank 0");
  std::vector<std::string> differing;
  for (std::size_t i = 0; i < mine.size(); ++i)
    if (mine[i] != of_rank_0[i]) differing.push_back(mine[i] + " (rank 0: " + of_rank_0[i] + ")");
  if (differing.empty()) return;
  throw ConfigError("error: " + self + " has another configuration than rank 0: " + join(differing, ", ") +
                    "; start all ranks with the same files, variables and flags");
}

// How much was asked for, where there was no room for it: torch says so in the middle of a long text, the standard
// library not at all. Nothing for other errors.
std::optional<std::string> refused_allocation(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error)) return "an array of the host";
  static const std::regex kTorch("[Tt]ried to allocate ([0-9.]+) ?([A-Za-z]+)");
  std::cmatch match;
  if (!std::regex_search(error.what(), match, kTorch)) return std::nullopt;
  const bool in_bytes = match[2] == "bytes";
  return "a tensor of " + (in_bytes ? format_bytes(std::stod(match[1])) : match[1].str() + " " + match[2].str());
}

// A trainer that failed is not taken down: its end waits for a save under way, which may wait for a rank that is gone.
// The process ends with it.
train::Trainer::End train_to_the_end(std::unique_ptr<train::Trainer> trainer) {
  try {
    return trainer->train();
  } catch (const std::exception& error) {
    const auto step = trainer.release()->finished_steps() + 1;
    const auto what = refused_allocation(error);
    if (!what) throw;
    throw Error("out of memory in step " + std::to_string(step) + ": there is no room for " + *what +
                    ". The same command with --dry-run says what takes how much; a smaller training.local_batch_size, "
                    "activation_checkpoint.mode = \"full\" or more ranks take less",
                kExitFailed);
  }
}

// Only what is saved can be gone on with: without that the code is the signal's, as of any program that it ends.
int exit_code_of_end(train::Trainer::End end) {
  if (end == train::Trainer::End::kCompleted) return kExitDone;
  if (end == train::Trainer::End::kStopped) return kExitSavedRequeue;
  if (end == train::Trainer::End::kDiverged) return kExitDiverged;
  return 128 + stop_requested().value_or(SIGTERM);  // this rank may not have got it
}

int train(const CheckedInput& checked, dist::World& world) {
  const auto& config = checked.config;
  check_same_config(config, world);
  const auto lock = world.rank() == 0 ? lock_dump_folder(config.job.dump_folder) : nullptr;
  const auto shape = dist::RunShape::of(config, world.size());
  const auto meshes = dist::Meshes::build(world, shape.dims);
  auto source = open_training_set(checked, meshes.batch, world, shape);
  const auto end = train_to_the_end(
      std::make_unique<train::Trainer>(config, world, meshes, checked.spec, checked.tokenizer_facts, std::move(source),
                                       open_held_out(checked, meshes.batch), checked.prompts));
  if (const auto arena = kernels::host_arena_stats(); arena.peak_in_use > 0)
    spdlog::info("tensors of this rank took at most {} on the host",
                 format_bytes(static_cast<double>(arena.peak_in_use)));
  world.shutdown();
  return exit_code_of_end(end);
}

// A rank that fails tells the others; one that fails because another did says what that one said. Its world, as its
// trainer, is not taken down.
int train_or_report(const CheckedInput& checked, const LaunchEnv& env, c10::DeviceType device_type) {
  auto world =
      std::make_unique<dist::World>(env, device_type, std::chrono::seconds(checked.config.comm.init_timeout_seconds));
  try {
    return train(checked, *world);
  } catch (const PeerError& error) {
    world->stop(error.what());
  } catch (const std::exception& error) {
    if (!world.release()->report_failure(error.what())) throw;
    const auto* own = dynamic_cast<const Error*>(&error);
    return own ? own->exit_code() : kExitFailed;
  }
}

}  // namespace

int run_train(const config::CommandLine& command_line) {
  const LaunchEnv env = detect_launch();
  init_log(static_cast<int>(env.rank), static_cast<int>(env.world_size), true);
  if (command_line.dry_run || command_line.print_config)
    log_to_stderr("titan-train");  // standard output is for the result
  end_at_once_on_signal(env.rank == 0 ? "titan-train: asked to stop before the first step; nothing was saved\n" : "");
  const std::int64_t world_size = command_line.world_size.value_or(command_line.nproc.value_or(env.world_size));
  CheckedInput checked;
  try {
    checked = check_input(command_line, world_size);
  } catch (const ConfigError&) {
    if (env.rank == 0) throw;
    return kExitBadInput;  // rank 0 prints the same
  }
  const auto& config = checked.config;
  if (env.rank == 0 && (command_line.print_config || command_line.dry_run)) {
    for (const auto& warning : checked.warnings) std::fprintf(stderr, "warning: %s\n", warning.c_str());
  }
  if (command_line.print_config) {
    const std::string text = command_line.only_changed   ? config::changed_to_toml(config)
                             : command_line.show_origins ? config::to_toml(config, checked.origins)
                                                         : config::to_toml(config);
    std::fputs(text.c_str(), stdout);
    return kExitDone;
  }
  if (command_line.dry_run) return run_dry(command_line, checked, world_size, env);
  init_log(static_cast<int>(env.rank), static_cast<int>(env.world_size), !config.metrics.disable_color_printing);
  train::set_num_threads(env.local_world_size);
  choose_cpu_code(config.cpu);
  auto device_type = c10::DeviceType::CPU;
  try {
    device_type = pick_device_type(config, env);
    // Once a machine. Where one rank alone lacks a file it finds out after the ranks have met, and all hear of it.
    if (env.local_rank == 0) {
      check_files(checked);
      if (!command_line.no_preflight) check_room(checked, env, device_type);
    } else {
      load_tokenizer(checked);
    }
    if (env.rank == 0) check_folder(checked, command_line.overwrite);
  } catch (const Error& error) {
    if (env.local_rank == 0 || error.exit_code() != kExitBadInput) throw;
    return kExitBadInput;  // a rank of this machine prints the same
  }
  if (env.rank == 0) {
    for (const auto& warning : checked.warnings) spdlog::warn(warning);
  }
  if (device_type == c10::DeviceType::CPU && config.training.device != "cpu")
    spdlog::info("training on CPU: {}", dist::load_accelerator_module());
  return train_or_report(checked, env, device_type);
}

}  // namespace titan
