#include "apps/preflight.h"

#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "checkpoint/step_folders.h"
#include "config/paths.h"
#include "config/validate.h"
#include "dist/dtype.h"
#include "train/memory_estimate.h"

namespace titan {
namespace {

namespace fs = std::filesystem;

// More than any run takes: for the many that are nowhere near a limit, which need no estimate. Bytes.
std::int64_t generous_guess(const config::JobConfig& config, const ModelStats& stats, std::int64_t world_size) {
  constexpr std::int64_t kBytesOfParameter = 16;  // it, its gradient and AdamW's two moments
  constexpr std::int64_t kValuesOfLayer = 60;     // of a token, each as wide as the model
  constexpr std::int64_t kBytesOfLogit = 16;
  const std::int64_t ranks = config::resolve_shard_degree(config.parallelism, world_size);
  const std::int64_t tokens = config.training.local_batch_size * config.training.seq_len;
  const std::int64_t kept =
      tokens * (stats.num_layers * kValuesOfLayer * stats.dim * 4 + stats.vocab_size * kBytesOfLogit);
  const std::int64_t whole = 8 * stats.num_parameters;  // gathered groups are less
  return stats.num_parameters * kBytesOfParameter / ranks + kept + whole;
}

std::int64_t bytes_of(const std::string& dtype) {
  return static_cast<std::int64_t>(c10::elementSize(dist::dtype_of(dtype)));
}

// The nearest folder above one that may not be there yet.
fs::path existing(fs::path path) {
  std::error_code error;
  path = fs::absolute(path, error);
  while (!fs::exists(path, error) && path.has_relative_path()) path = path.parent_path();
  return path;
}

std::string text(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

}  // namespace

std::optional<std::string> find_lack_of_memory(const config::JobConfig& config, const TrainSpec& spec,
                                               std::int64_t world_size, const Capacity& capacity) {
  if (generous_guess(config, spec.stats, world_size) <= capacity.bytes_of_a_rank) return std::nullopt;
  const auto peak = train::estimate_memory(config, spec, static_cast<int>(world_size)).peak;
  if (peak <= capacity.bytes_of_a_rank) return std::nullopt;
  return "error: this run will not fit: its tensors take " + text(peak) + " on each rank, and " + capacity.words +
         ". Lower training.local_batch_size (" + std::to_string(config.training.local_batch_size) +
         ") or training.seq_len (" + std::to_string(config.training.seq_len) +
         "), set activation_checkpoint.mode = \"full\", or use more ranks on more machines; --dry-run shows what takes "
         "how "
         "much. --no-preflight starts all the same";
}

std::optional<DiskShortage> find_lack_of_disk(const config::JobConfig& config, const TrainSpec& spec) {
  const config::Checkpoint& options = config.checkpoint;
  if (!options.enable || options.load_only) return std::nullopt;
  const fs::path folder = config::checkpoint_folder(config);
  const auto there = checkpoint::steps_in(folder);
  const std::int64_t steps = options.create_seed_checkpoint ? 0 : config.training.steps;
  const std::int64_t last = there.empty() ? 0 : there.back();
  const std::int64_t full = 3 * spec.stats.num_parameters * bytes_of(config.training.dtype);
  const bool ends_with_model = options.last_save_model_only;
  const std::int64_t end = ends_with_model ? spec.stats.num_parameters * bytes_of(options.export_dtype) : full;
  const std::int64_t saves = std::max<std::int64_t>(0, (steps - 1) / options.interval - last / options.interval);
  if (last >= steps && !options.create_seed_checkpoint) return std::nullopt;  // nothing is left to do
  std::error_code error;
  const auto space = fs::space(existing(folder), error);
  if (error) return std::nullopt;
  const auto free = static_cast<std::int64_t>(space.available);
  const std::string where = "checkpoints go to " + folder.string() + ", where " + text(free) + " are free";
  const std::int64_t first = saves > 0 ? full : end;
  if (first > free)
    return DiskShortage{
        "error: " + where + ", and the first one takes " + text(first) +
            ": make room, or choose another job.dump_folder or checkpoint.folder. --no-preflight starts "
            "all the same",
        /*is_certain=*/true};
  // While one is written those that it replaces are still there.
  std::int64_t kept = saves;
  if (options.keep_latest_k > 0) kept = std::min(saves, options.keep_latest_k + 1 - std::ssize(there));
  const std::int64_t all = std::max<std::int64_t>(kept, 0) * full + end;
  if (all <= free) return std::nullopt;
  return DiskShortage{where + ", and this run will keep " + text(all) +
                      " of them: make room, or set checkpoint.keep_latest_k (" + std::to_string(options.keep_latest_k) +
                      ") or checkpoint.interval (" + std::to_string(options.interval) + ")"};
}

}  // namespace titan
