#include "train/dry_run/suggest_changes.h"

#include <algorithm>
#include <functional>
#include <string>

#include "base/error.h"
#include "config/pipeline_plan.h"
#include "config/validate.h"

namespace titan::train {
namespace {

constexpr std::size_t kMostSuggestions = 4;
// The pipeline schedule whose ranks have the fewest microbatches between forward and backward.
constexpr const char* kLeanSchedule = "1F1B";

struct Candidate {
  std::string change;
  config::JobConfig config;
  int world_size;
};

// Returns the candidates, from the one that alters the run least to the one that alters it most.
std::vector<Candidate> candidates(const config::JobConfig& config, int world_size, bool is_gpu) {
  std::vector<Candidate> out;
  const auto add = [&](std::string change, const std::function<void(config::JobConfig&)>& apply, int ranks) {
    out.push_back({std::move(change), config, ranks});
    apply(out.back().config);
  };
  const auto full = [](config::JobConfig& c) { c.activation_checkpoint.mode = "full"; };
  const auto& ac = config.activation_checkpoint;
  if (is_gpu && config.cuda.kernels == "aten")
    add(
        "cuda.kernels = \"own\"", [](config::JobConfig& c) { c.cuda.kernels = "own"; }, world_size);
  if (ac.mode == "none" || (ac.mode == "selective" && ac.selective_ac_option != "op")) {
    add(
        "activation_checkpoint.mode = \"selective\" with selective_ac_option = \"op\"",
        [](config::JobConfig& c) {
          c.activation_checkpoint.mode = "selective";
          c.activation_checkpoint.selective_ac_option = "op";
        },
        world_size);
  }
  if (ac.mode != "full") add("activation_checkpoint.mode = \"full\"", full, world_size);
  if (config.parallelism.fsdp_reshard_after_forward == "never") {
    add(
        "parallelism.fsdp_reshard_after_forward = \"always\"",
        [](config::JobConfig& c) { c.parallelism.fsdp_reshard_after_forward = "always"; }, world_size);
  }
  if (config.parallelism.data_parallel_replicate_degree > 1) {
    add(
        "parallelism.data_parallel_replicate_degree = 1 with data_parallel_shard_degree = -1",
        [](config::JobConfig& c) {
          c.parallelism.data_parallel_replicate_degree = 1;
          c.parallelism.data_parallel_shard_degree = -1;
        },
        world_size);
  }
  const bool has_pipeline = config.parallelism.pipeline_parallel_degree > 1;
  if (has_pipeline) {
    if (config.parallelism.pipeline_parallel_schedule != kLeanSchedule)
      add(
          "parallelism.pipeline_parallel_schedule = \"1F1B\"",
          [](config::JobConfig& c) {
            c.parallelism.pipeline_parallel_schedule = kLeanSchedule;
            c.parallelism.pipeline_parallel_schedule_csv.reset();
          },
          world_size);
    if (config.parallelism.fsdp_reshard_after_forward == "default")
      add(
          "parallelism.fsdp_reshard_after_forward = \"always\"",
          [](config::JobConfig& c) { c.parallelism.fsdp_reshard_after_forward = "always"; }, world_size);
    if (config.parallelism.pipeline_parallel_microbatch_size > 1)
      add(
          "parallelism.pipeline_parallel_microbatch_size = 1",
          [](config::JobConfig& c) { c.parallelism.pipeline_parallel_microbatch_size = 1; }, world_size);
  }
  const auto batch = config.training.local_batch_size;
  const auto with_batch = [](std::int64_t size) {
    return [size](config::JobConfig& c) { c.training.local_batch_size = size; };
  };
  const auto batch_key = [](std::int64_t size) { return "training.local_batch_size = " + std::to_string(size); };
  if (batch > 3) add(batch_key(batch / 2), with_batch(batch / 2), world_size);
  if (batch > 1) add(batch_key(1), with_batch(1), world_size);
  if (batch > 1 && ac.mode != "full") {
    add(
        "activation_checkpoint.mode = \"full\" and training.local_batch_size = 1",
        [&](config::JobConfig& c) { full(c), with_batch(1)(c); }, world_size);
  }
  // A row of which the ranks have parts needs less of everything that grows with tokens; a step has fewer rows, or more
  // microbatches.
  const auto& parallelism = config.parallelism;
  const auto parts = 2 * parallelism.context_parallel_degree;
  if (batch == 1 && parallelism.data_parallel_shard_degree == -1 &&
      config::num_data_parallel_ranks(parallelism, world_size) % 2 == 0 &&
      config.training.seq_len % (2 * parts * parallelism.tensor_parallel_degree) == 0) {
    add(
        "parallelism.context_parallel_degree = " + std::to_string(parts),
        [parts](config::JobConfig& c) { c.parallelism.context_parallel_degree = parts; }, world_size);
  }
  if (is_gpu && config.parallelism.data_parallel_shard_degree == -1)  // ranks on CPU share the machine's memory
    add(
        "twice as many ranks (" + std::to_string(2 * world_size) + ")", [](config::JobConfig&) {}, 2 * world_size);
  if (is_gpu && !config.training.enable_cpu_offload) {
    add(
        "training.enable_cpu_offload = true (slow)", [](config::JobConfig& c) { c.training.enable_cpu_offload = true; },
        world_size);
  }
  return out;
}

// True if a run with this configuration would be refused: for example, the global batch does not divide, or the
// schedule needs more microbatches.
bool is_refused(const config::JobConfig& config, const TrainSpec& spec, int world_size) {
  if (!config::cross_check(config, world_size).errors.empty()) return true;
  if (config.parallelism.pipeline_parallel_degree == 1) return false;
  try {
    config::pipeline_plan(config, spec.stats.num_layers);
    return false;
  } catch (const Error&) {
    return true;
  }
}

}  // namespace

std::vector<Suggestion> suggest_changes(const config::JobConfig& config, const TrainSpec& spec, int world_size,
                                        const Device& device, const Demand& demand) {
  std::vector<Suggestion> fitting, smaller;
  for (const auto& [change, changed, ranks] : candidates(config, world_size, device.is_gpu)) {
    if (fitting.size() == kMostSuggestions) break;
    if (is_refused(changed, spec, ranks)) continue;
    const Demand then = demand_of(changed, spec, ranks, device);
    if (then.total() >= demand.total()) continue;
    (then.fits() ? fitting : smaller).push_back({change, then.total(), then.fits()});
  }
  std::ranges::stable_sort(smaller, {}, &Suggestion::total);
  fitting.insert(fitting.end(), smaller.begin(), smaller.end());
  if (fitting.size() > kMostSuggestions) fitting.resize(kMostSuggestions);
  return fitting;
}

}  // namespace titan::train
