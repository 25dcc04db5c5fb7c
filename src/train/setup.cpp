#include "train/setup.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <random>

#include "base/error.h"
#include "base/process/processors.h"
#include "config/keys/print.h"
#include "config/paths.h"
#include "distributed/config_dtype.h"
#include "distributed/device.h"
#include "distributed/flight/flight_recorder.h"
#include "facts/device_facts.h"
#include "metrics/flops.h"

namespace titan::train {

std::uint64_t agree_on_seed(const std::optional<std::int64_t>& configured, dist::ProcessGroup& world) {
  if (configured) return static_cast<std::uint64_t>(*configured);
  std::string drawn;
  if (world.rank() == 0) drawn = std::to_string(std::random_device{}());
  const auto seed = std::stoull(world.broadcast_bytes(drawn, 0));
  spdlog::info("seed {} (set debug.seed = {} to repeat this run)", seed, seed);
  return seed;
}

void set_determinism(const config::Debug& debug) {
  // cuBLAS is deterministic only with a fixed workspace, a setting that it reads when it starts.
  if (debug.deterministic) setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  // Sums in NVLink's switches differ from run to run. c10d excludes one of NCCL's two algorithms that make them,
  // but not the one for several machines; NCCL reads the variable when it starts.
  if (debug.deterministic) setenv("NCCL_ALGO", "^NVLS,NVLSTree", /*overwrite=*/0);
  at::globalContext().setDeterministicAlgorithms(debug.deterministic, /*warn_only=*/false);
}

void set_num_threads(std::int64_t local_world_size) {
  if (std::getenv("OMP_NUM_THREADS")) return;
  at::set_num_threads(static_cast<int>(std::max<std::int64_t>(1, own_processors().quota / local_world_size)));
}

ProcessorShare share_processors(const dist::World& world) {
  std::vector<Processors> all;
  for (const auto& text : world.group().all_gather_bytes(to_text(own_processors())))
    all.push_back(parse_processors(text));
  const ProcessorShare share = share_of_rank(all, static_cast<std::size_t>(world.rank()));
  if (!std::getenv("OMP_NUM_THREADS")) at::set_num_threads(static_cast<int>(share.threads));
  return share;
}

bool uses_float16(const config::Training& training) {
  return training.mixed_precision_param == "float16" || training.mixed_precision_reduce == "float16";
}

metrics::MetricsOptions metrics_options(const config::JobConfig& config, const TrainSpec& spec,
                                        const dist::ParallelDims& dims, at::Device device) {
  metrics::MetricsOptions options;
  options.log_freq = config.metrics.log_freq;
  options.flops_per_token = metrics::flops_per_token(spec.stats, config.training.seq_len);
  options.non_data_parallel_size = dims.ranks_of_batch();
  if (device.is_cpu()) {
    options.communication = [] { return dist::flight_recorder().seconds_spent(); };
    return options;
  }
  const auto* module = dist::accelerator();
  options.peak_flops = device_peak_flops(module->device_name(device.index()), config.training.mixed_precision_param);
  options.memory = [module, index = device.index()] {
    metrics::MemoryUsage usage{.peak_bytes = static_cast<std::uint64_t>(module->peak_reserved_bytes(index)),
                               .capacity_bytes = static_cast<std::uint64_t>(module->device_capacity_bytes(index)),
                               .active_peak_bytes = static_cast<std::uint64_t>(module->peak_active_bytes(index)),
                               .num_alloc_retries = module->num_alloc_retries(index),
                               .num_ooms = module->num_ooms(index)};
    module->reset_peak_memory(index);
    return usage;
  };
  return options;
}

void draw_weights(LanguageModel& model, at::Device device, std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  std::unique_ptr<nn::Initializer> initializer;
  if (device.is_cpu()) {
    initializer = std::make_unique<nn::SequentialInitializer>(seed);
  } else {
    initializer = std::make_unique<nn::CounterInitializer>(seed);
  }
  model.init_weights(*initializer, device);
}

optim::LrSchedule build_lr_schedule(const config::LRScheduler& options, std::int64_t training_steps) {
  return optim::LrSchedule({.total_steps = options.total_steps.value_or(training_steps),
                            .warmup_steps = options.warmup_steps,
                            .decay_ratio = options.decay_ratio,
                            .decay_type = optim::parse_decay_type(options.decay_type),
                            .min_lr_factor = options.min_lr_factor});
}

checkpoint::RunFacts run_facts(const config::JobConfig& config, const TrainSpec& spec,
                               const TokenizerFacts& tokenizer) {
  checkpoint::RunFacts run;
  run.base = config::checkpoint_folder(config);
  run.training_steps = config.training.steps;
  run.hf_assets_path = config.model.hf_assets_path;
  run.hf_format.naming = spec.naming;
  run.hf_format.small_files = [naming = spec.naming, tokenizer_of_run = tokenizer.hugging_face](c10::ScalarType dtype) {
    return checkpoint::describe_export(naming, dtype, tokenizer_of_run ? tokenizer_of_run() : HuggingFaceTokenizer());
  };
  run.texts[layout::kSavedConfigFile] = config::to_toml(config);
  if (!tokenizer.chat_template.empty()) run.texts[layout::kChatTemplateFile] = tokenizer.chat_template;
  return run;
}

}  // namespace titan::train
