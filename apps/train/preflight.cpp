#include "apps/train/preflight.h"

#include <algorithm>
#include <filesystem>

#include "apps/train/copies_check.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/process/memory.h"
#include "base/process/speaks.h"
#include "base/text.h"
#include "checkpoint/dcp/step_folders.h"
#include "config/command_line/command_line.h"
#include "config/keys/source.h"
#include "config/paths.h"
#include "config/validate.h"
#include "distributed/config_dtype.h"
#include "distributed/device.h"
#include "distributed/parallel_dims.h"
#include "facts/optimizer_facts.h"
#include "train/dry_run/dry_run.h"

namespace titan {
namespace {

namespace fs = std::filesystem;

double bytes_of(const std::string& dtype) { return static_cast<double>(c10::elementSize(dist::dtype_of(dtype))); }

// Sizes of a run as doubles, which cannot overflow whatever the configuration says.
struct Size {
  double parameters, tokens, layers, dim, vocabulary;
  double ranks_of_copy;   // ranks that share one copy of the parameters
  double ranks_of_batch;  // ranks that share the activations of a batch
  double stages;          // of them, those of a pipeline
  double microbatches;    // of a pipeline, in a batch
  double moments;         // tensors that the optimizer keeps per parameter, in units of a stored parameter
  double bytes;           // of a stored parameter, on average
  bool offloads;          // parameters, gradients and moments are in the host's memory
};

Size size_of(const config::JobConfig& config, const ModelStats& stats, std::int64_t world_size,
             train::EstimatedDevice device) {
  const auto dims = dist::ParallelDims::from_config(config.parallelism, static_cast<int>(world_size));
  const auto frozen = static_cast<double>(stats.num_frozen_parameters), all = static_cast<double>(stats.num_parameters);
  const double stored = (all - frozen) * bytes_of(config.training.dtype) +
                        frozen * bytes_of(config.lora.base_dtype.value_or(config.training.dtype));
  const double of_moments = (all - frozen) * optimizer_facts(config.optimizer.name).moments *
                            bytes_of(config.optimizer.state_dtype.value_or(config.training.dtype));
  return {
      .parameters = static_cast<double>(stats.num_parameters),
      .tokens = static_cast<double>(config.training.local_batch_size) * static_cast<double>(config.training.seq_len),
      .layers = static_cast<double>(stats.num_layers),
      .dim = static_cast<double>(stats.dim),
      .vocabulary = static_cast<double>(stats.vocab_size),
      .ranks_of_copy = static_cast<double>(dims.dp_shard * dims.ranks_of_batch()),
      .ranks_of_batch = static_cast<double>(dims.ranks_of_batch()),
      .stages = static_cast<double>(dims.pp),
      .microbatches = dims.pp == 1 ? 1.0
                                   : static_cast<double>(config.training.local_batch_size) /
                                         static_cast<double>(config.parallelism.pipeline_parallel_microbatch_size),
      .moments = of_moments / stored,
      .bytes = stored / all,
      .offloads = config.training.enable_cpu_offload && device == train::EstimatedDevice::kGpu};
}

// Returns an upper bound in bytes, so that runs far below the limit skip the full estimate.
double most(const Size& size) {
  const double bytes_of_parameter = 4 * (2 + size.moments);  // parameter, gradient and the optimizer's moments
  constexpr double kBytesOfGathered = 8;                     // upper bound: only two groups are gathered at a time
  constexpr double kBytesOfLayer = 60 * 4;                   // per token, times the model's width
  constexpr double kBytesOfLogit = 16;
  // The stage with the output projection may have most of a small model.
  return size.parameters * (bytes_of_parameter * size.stages / size.ranks_of_copy + kBytesOfGathered) +
         size.tokens * (size.layers * size.dim * kBytesOfLayer + size.vocabulary * kBytesOfLogit);
}

// Returns a cheap lower bound in bytes, so that absurd sizes skip the full estimate, which could take minutes.
double least(const Size& size) {
  constexpr double kBytesOfToken = 16;  // token and label
  constexpr double kBytesOfInput = 2;   // a block's input, kept even with full recomputation
  // A stage may have a single microbatch between its forward and its backward.
  const double in_flight = 1 / size.microbatches;
  const double parameters = size.offloads ? 0 : size.parameters;
  return (1 + size.moments) * parameters * size.bytes / size.ranks_of_copy +
         size.tokens * (kBytesOfToken + size.layers * size.dim * kBytesOfInput * in_flight) / size.ranks_of_batch;
}

// GPU memory that the driver and this process's context take at most.
constexpr std::int64_t kHeldByContexts = std::int64_t{2} << 30;

// Returns the memory of a device that other processes do not hold.
Capacity capacity_of_device(int index) {
  const auto& gpu = *dist::accelerator();
  Capacity capacity{.bytes_of_a_rank = gpu.device_capacity_bytes(index), .device = train::EstimatedDevice::kGpu};
  capacity.words = gpu.device_name(index) + " has " + format_bytes(static_cast<double>(capacity.bytes_of_a_rank));
  const auto held = gpu.device_free_bytes ? capacity.bytes_of_a_rank - gpu.device_free_bytes(index) : 0;
  if (held <= kHeldByContexts) return capacity;
  capacity.bytes_of_a_rank -= held;
  capacity.words +=
      ", of which " + format_bytes(static_cast<double>(held)) + " are held already (nvidia-smi says by whom)";
  return capacity;
}

// Returns the memory that each of `ranks` on this machine may use.
Capacity capacity_of_a_rank(std::int64_t ranks, c10::DeviceType device_type) {
  if (device_type != c10::DeviceType::CPU) return capacity_of_device(0);
  const FreeMemory free = free_memory();
  Capacity capacity{.bytes_of_a_rank = free.bytes / ranks};
  capacity.words = free.owner + " has " + format_bytes(static_cast<double>(free.bytes)) + " of free memory for " +
                   counted(ranks, "rank");
  return capacity;
}

}  // namespace

std::vector<std::string> check_room(const CheckedConfig& checked, const LaunchEnv& launch,
                                    c10::DeviceType device_type) {
  const config::JobConfig& config = checked.config;
  std::vector<std::string> errors, warnings;
  const Capacity capacity = capacity_of_a_rank(std::max<std::int64_t>(launch.local_world_size, 1), device_type);
  if (const auto lack = find_lack_of_memory(config, checked.spec, launch.world_size, capacity))
    errors.push_back(config::with_location(*lack, checked.origins));
  if (const auto lack = find_lack_for_copies(config, checked.spec, free_memory().bytes))
    errors.push_back(config::with_location(*lack, checked.origins));
  const auto no_disk = speaks_for_job(launch) ? find_lack_of_disk(config, checked.spec) : std::nullopt;
  if (no_disk && no_disk->is_certain && config.checkpoint.on_save_error == "stop") {
    errors.push_back(config::with_location(no_disk->fault, checked.origins));
  } else if (no_disk) {
    warnings.push_back(no_disk->fault.message);
  }
  config::throw_if_wrong(errors);
  return warnings;
}

void check_own_device(const CheckedConfig& checked, const LaunchEnv& launch) {
  const auto& gpu = *dist::accelerator();
  const auto index = static_cast<int>(launch.local_rank % std::max(gpu.device_count(), 1));
  const Capacity capacity = capacity_of_device(index);
  if (capacity.bytes_of_a_rank == gpu.device_capacity_bytes(index)) return;
  if (const auto lack = find_lack_of_memory(checked.config, checked.spec, launch.world_size, capacity))
    throw Error("device " + std::to_string(index) + ": " + lack->message, kExitFailed);
}

MemoryBounds memory_bounds(const config::JobConfig& config, const ModelStats& stats, std::int64_t world_size,
                           train::EstimatedDevice device) {
  const Size size = size_of(config, stats, world_size, device);
  return {least(size), most(size)};
}

std::optional<config::Fault> find_lack_of_memory(const config::JobConfig& config, const TrainSpec& spec,
                                                 std::int64_t world_size, const Capacity& capacity) {
  const auto room = static_cast<double>(capacity.bytes_of_a_rank);
  const auto [bound, upper_bound] = memory_bounds(config, spec.stats, world_size, capacity.device);
  if (upper_bound <= room) return std::nullopt;
  double peak = bound;
  std::string where = "each rank";
  if (bound <= room) {
    const auto memory = train::estimate_memory(config, spec, static_cast<int>(world_size), capacity.device);
    peak = static_cast<double>(memory.peak());
    if (!memory.of_pipeline_ranks.empty()) where = "rank " + std::to_string(memory.pipeline_rank) + " of the pipeline";
  }
  if (peak <= room) return std::nullopt;
  return config::Fault{
      "this run will not fit: its tensors take " + std::string(bound > room ? "at least " : "") + format_bytes(peak) +
          " on " + where + ", and " + capacity.words + ". Lower training.local_batch_size (" +
          std::to_string(config.training.local_batch_size) + ") or training.seq_len (" +
          std::to_string(config.training.seq_len) +
          "), set activation_checkpoint.mode = \"full\", or use more ranks on more machines; --dry-run shows what "
          "takes how much. --no-preflight starts all the same",
      {"training.local_batch_size", "training.seq_len", "activation_checkpoint.mode"}};
}

std::optional<DiskShortage> find_lack_of_disk(const config::JobConfig& config, const TrainSpec& spec) {
  const config::Checkpoint& options = config.checkpoint;
  if (!config::saves_checkpoints(options)) return std::nullopt;
  const fs::path folder = config::checkpoint_folder(config);
  const auto there = checkpoint::steps_in(folder);
  const std::int64_t steps = options.create_seed_checkpoint ? 0 : config.training.steps;
  const std::int64_t last = there.empty() ? 0 : there.back();
  const auto size = train::checkpoint_size(config, spec.stats);
  const auto full = static_cast<double>(size.full);
  const double end = options.last_save_model_only ? static_cast<double>(size.model) : full;
  const std::int64_t saves = std::max<std::int64_t>(0, (steps - 1) / options.interval - last / options.interval);
  if (last >= steps && !options.create_seed_checkpoint) return std::nullopt;  // nothing is left to do
  std::error_code error;
  const auto space = fs::space(existing_part(folder), error);
  if (error || space.capacity == 0) return std::nullopt;  // some file systems do not report it
  const auto free = static_cast<double>(space.available);
  const std::string where = "checkpoints go to " + folder.string() + ", where " + format_bytes(free) + " are free";
  const double first = saves > 0 ? full : end;
  if (first > free)
    return DiskShortage{{where + ", and the first one takes " + format_bytes(first) +
                             ": make room, or choose another job.dump_folder or checkpoint.folder. --no-preflight "
                             "starts all the same",
                         {"job.dump_folder", "checkpoint.folder"}},
                        /*is_certain=*/true};
  // While a checkpoint is written, the one that it replaces still exists.
  std::int64_t kept = saves;
  if (options.keep_latest_k > 0) kept = std::min(saves, options.keep_latest_k + 1 - std::ssize(there));
  const double all = static_cast<double>(std::max<std::int64_t>(kept, 0)) * full + end;
  if (all <= free) return std::nullopt;
  return DiskShortage{{where + ", and this run will keep " + format_bytes(all) +
                           " of them: make room, or set checkpoint.keep_latest_k (" +
                           std::to_string(options.keep_latest_k) + ") or checkpoint.interval (" +
                           std::to_string(options.interval) + ")",
                       {"checkpoint.keep_latest_k", "checkpoint.interval"}}};
}

}  // namespace titan
