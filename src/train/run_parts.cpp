#include "train/run_parts.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "config/pipeline_plan.h"
#include "nn/float8/float8_linear.h"
#include "optim/make_optimizer.h"
#include "train/build_model.h"
#include "train/first_step.h"
#include "train/guests/checkpointing.h"
#include "train/guests/checksum_log.h"
#include "train/guests/float8_scaling.h"
#include "train/guests/gradient_norms.h"
#include "train/guests/memory_snapshots.h"
#include "train/guests/metrics_log.h"
#include "train/guests/numerics/divergence_watch.h"
#include "train/guests/numerics/memory_watch.h"
#include "train/guests/numerics/replica_watch.h"
#include "train/guests/numerics/spike_watch.h"
#include "train/guests/profiling.h"
#include "train/guests/run_events.h"
#include "train/guests/validation.h"
#include "train/run_folder.h"
#include "train/run_folder_watch.h"
#include "train/setup.h"

namespace titan::train {
namespace {

void build_model_and_optimizer(RunParts& run, const TrainSpec& spec, const TokenizerFacts& tokenizer) {
  const config::JobConfig& config = run.config;
  run.seed = agree_on_seed(config.debug.seed, run.world.group());
  // Ranks with other layers drop other elements, as in TorchTitan.
  at::manual_seed(run.seed + static_cast<std::uint64_t>(run.meshes.pp.local_rank("pp")));
  auto built = build_on_meta(spec, tokenizer.document_end, {run.meshes, config}, run.world.device());
  run.model = std::move(built.model);
  run.all_stages = std::move(built.all_stages);
  run.forward_backward = std::move(built.forward_backward);
  materialize(*run.model, run.meshes.fsdp.device(), config);
  run.parameters = std::make_unique<RunParameters>(*run.model, built.slots, stored_dtypes(config));
  run.optimizer = optim::make_optimizer(config.optimizer, run.parameters->to_train());
  if (speaks_for_all())
    for (const std::string& group : group_lines(config.optimizer, *run.parameters))
      spdlog::info("optimizer: {}", group);
  run.schedule = std::make_unique<optim::LrSchedule>(build_lr_schedule(config.lr_scheduler, config.training.steps));
  if (uses_float16(config.training)) run.grad_scaler = std::make_unique<optim::GradScaler>(run.world.device());
}

// Returns what a save asks first. A thread that writes a save may outlive a run that fails, and must not keep locks.
std::function<void()> held_folder_check(const std::weak_ptr<const FileLock>& lock,
                                        const std::weak_ptr<CheckpointFolderLock>& checkpoint_lock,
                                        const config::JobConfig& config) {
  return [lock, checkpoint_lock, config] {
    const auto held = lock.lock();
    const auto held_checkpoints = checkpoint_lock.lock();
    if (!held || !held_checkpoints) throw CheckpointError("the run has failed meanwhile");
    check_run_folder_is_held(*held, config);
    try {
      held_checkpoints->renew();
    } catch (const ConfigError& error) {
      throw CheckpointError(error.what());
    }
  };
}

void build_checkpointer(RunParts& run, RunInputs& inputs) {
  const config::JobConfig& config = run.config;
  dist::World& world = run.world;
  run.record = std::make_unique<RunRecord>(config, inputs.tokenizer, std::move(inputs.data_facts));
  run.state = std::make_unique<TrainState>(TrainState::Parts{.parameters = run.parameters.get(),
                                                             .optimizer = run.optimizer.get(),
                                                             .schedule = run.schedule.get(),
                                                             .grad_scaler = run.grad_scaler.get(),
                                                             .base_lr = config.optimizer.lr,
                                                             .data = run.data.get(),
                                                             .metrics = run.metrics.get(),
                                                             .record = run.record.get(),
                                                             .rank = world.rank(),
                                                             .world_size = world.size(),
                                                             .data_parallel_size = run.meshes.batch.group().size()});
  const bool in_background = config.checkpoint.async_mode != "disabled" || config.checkpoint.memory_interval > 0;
  run.checkpoint_ranks = std::make_unique<checkpoint::GroupRanks>(world.group());
  run.background_ranks =
      std::make_unique<checkpoint::GroupRanks>(in_background ? world.own_group("checkpoint") : world.group());
  checkpoint::RunFacts facts = run_facts(config, inputs.spec, inputs.tokenizer);
  // One machine sees only the files of its own ranks in its memory.
  if (world.env().local_world_size == world.env().world_size) facts.memory_folder = config.checkpoint.memory_folder;
  if (inputs.checkpoint_lock) facts.check_base = held_folder_check(inputs.folder_lock, inputs.checkpoint_lock, config);
  if (inputs.folder_lock) facts.sync_rows = [folder = config.job.dump_folder] { sync_rows(folder); };
  run.checkpointer = std::make_unique<checkpoint::Checkpointer>(
      config.checkpoint, std::move(facts), *run.checkpoint_ranks, *run.state, run.background_ranks.get());
}

void build_validation(RunParts& run, std::unique_ptr<BatchSource> held_out, Prompts prompts) {
  const config::JobConfig& config = run.config;
  if (!prompts.prompts.empty())
    run.samples = std::make_unique<PromptSamples>(std::move(prompts), config.validation.prompt_tokens,
                                                  config.training.seq_len, run.whole_model(), run.meshes.loss);
  if (!held_out) return;
  run.validator = std::make_unique<Validator>(config.validation, std::move(held_out), *run.model, *run.forward_backward,
                                              run.world.group(), run.meshes, *run.metrics, config.training.steps);
  run.checkpointer->set_keep_rule(
      [validator = run.validator.get()](const std::vector<int>& steps) { return validator->best_of(steps); });
}

// Adds a guest at the end of the list.
template <typename Guest>
Guest& add(RunParts& run, std::unique_ptr<Guest> guest) {
  Guest& added = *guest;
  if (!added.saved_key().empty()) run.state->also_saves(added);
  run.guests.push_back(std::move(guest));
  return added;
}

void add_watches(RunParts& run, MetricsLog& log) {
  const config::JobConfig& config = run.config;
  const ReadSteps read_steps(log, *run.checkpointer, config.training.steps);
  if (config.training.on_spike != "ignore") {
    const auto sum = [&group = run.meshes.loss.group()](at::Tensor& losses) {
      group.all_reduce(losses, dist::ReduceOp::kSum).wait();
    };
    add(run, std::make_unique<SpikeWatch>(config.training, run.world.device(), sum, read_steps, *run.events));
  }
  add(run, std::make_unique<ReplicaWatch>(ReplicaWatch::Parts{
               .check = ReplicaCheck(*run.parameters, *run.optimizer, run.meshes, run.world.group()),
               .checkpointer = *run.checkpointer,
               .events = *run.events,
               .read_steps = read_steps,
               .freq = config.debug.checksum_freq}));
  add(run, std::make_unique<DivergenceWatch>(DivergenceWatch::Parts{
               .config = config,
               .checkpointer = *run.checkpointer,
               .log = log,
               .events = *run.events,
               .read_steps = read_steps,
               .locator = NanLocator(*run.model, *run.parameters, *run.forward_backward, run.world.group()),
               .roll_back = [rollback = run.rollback.get()](std::int64_t step) { return rollback->run(step); },
               .judges_norm = !run.grad_scaler,
               .norm_is_on_host = run.world.device().is_cpu()}));
}

void add_memory_watch(RunParts& run) {
  if (run.config.debug.memory_check_freq == 0) return;
  // On a device, side streams write gathered parameters and gradients. A gradient scaler writes gradients, too.
  const bool is_on_host = run.world.device().is_cpu();
  auto gathers = is_on_host ? std::make_unique<GatherCheck>(*run.model, !run.grad_scaler) : nullptr;
  add(run, std::make_unique<MemoryWatch>(MemoryWatch::Parts{
               .check = MemoryCheck(*run.parameters, *run.optimizer),
               .updates = is_on_host ? std::make_unique<UpdateWatch>(*run.optimizer) : nullptr,
               .gathers = std::move(gathers),
               .checkpointer = *run.checkpointer,
               .events = *run.events,
               .world = run.world.group(),
               .finished_steps = run.state->step,
               .run_again = [rollback = run.rollback.get()](
                                std::int64_t step, const auto& accepts) { return rollback->run_again(step, accepts); },
               .freq = run.config.debug.memory_check_freq}));
}

// Adds the guests. Their order matters: nothing is written to a folder that is not the run's any more, memory is
// watched from right after the update on, rows are logged before messages about them, a run that diverged, or whose
// ranks hold different copies, saves nothing, and a run that was asked to stop is not validated first.
void add_guests(RunParts& run, const TrainSpec& spec, const TokenizerFacts& tokenizer,
                std::vector<EvaluationTask> tasks, const FileLock* folder_lock) {
  const config::JobConfig& config = run.config;
  add(run, std::make_unique<RunFolderWatch>(folder_lock, config));
  add(run, std::make_unique<FirstStep>(config, tokenizer.chat_template, run.world, *run.model, *run.metrics));
  add(run, std::make_unique<RunEvents>(*run.events, run.state->step, run.world.size()));
  add_memory_watch(run);
  auto& log = add(
      run, std::make_unique<MetricsLog>(*run.metrics, *run.data, run.meshes, config.training.mixed_precision_param));
  if (config.metrics.enable_tensorboard && config.metrics.gradient_histograms)
    add(run, std::make_unique<GradientNorms>(*run.metrics, *run.parameters, run.meshes.pp.group()));
  add_watches(run, log);
  add(run, std::make_unique<ChecksumLog>(config.job.dump_folder, config.debug.checksum_freq, *run.parameters, run.world,
                                         run.state->step));
  add(run, std::make_unique<Checkpointing>(Checkpointing::Parts{.checkpointer = *run.checkpointer,
                                                                .events = *run.events,
                                                                .metrics = *run.metrics,
                                                                .world = run.world.group(),
                                                                .last_step = config.training.steps}));
  add(run, std::make_unique<Validation>(run.validator.get(), run.samples.get()));
  if (!tasks.empty())
    run.evaluation =
        &add(run, std::make_unique<TaskEvaluation>(TaskEvaluation::Parts{.options = config.evaluation,
                                                                         .tasks = std::move(tasks),
                                                                         .vocab_size = spec.stats.vocab_size,
                                                                         .last_step = config.training.steps,
                                                                         .model = run.whole_model(),
                                                                         .world = run.world.group(),
                                                                         .meshes = run.meshes,
                                                                         .metrics = *run.metrics}));
  if (config.quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp)
    add(run, std::make_unique<Float8Scaling>(*run.model));
  if (config.profiling.enable_memory_snapshot) add(run, std::make_unique<MemorySnapshots>(config, run.world));
  if (config.profiling.enable_profiling) add(run, std::make_unique<Profiling>(config, run.world, *run.model));
}

std::int64_t count_float8_layers(nn::Module& model) {
  return std::ranges::count_if(model.named_modules(), [](const nn::NamedModule& module) {
    return dynamic_cast<nn::Float8Linear*>(module.module) != nullptr;
  });
}

void announce(const RunParts& run, const TrainSpec& spec) {
  const std::int64_t all = spec.stats.num_parameters, frozen = spec.stats.num_frozen_parameters;
  const std::string trained = frozen == 0 ? "" : ", of which " + with_thousands(all - frozen) + " are trained";
  spdlog::info("{}: {} parameters{}, {} on this rank, {}, {} of {} tokens per step", spec.name, with_thousands(all),
               trained, with_thousands(run.parameters->local_numel()), counted(run.world.size(), "rank"),
               counted(run.shape.sequences_per_step, "sequence"), run.config.training.seq_len);
  if (const auto layers = count_float8_layers(*run.model); layers > 0)
    spdlog::info("float8 by recipe {}: {} of this rank{}{}",
                 run.config.quantize.linear.float8.recipe_name.value_or("tensorwise"), counted(layers, "linear layer"),
                 run.config.quantize.linear.float8.enable_fsdp_float8_all_gather && run.meshes.fsdp.size("fsdp") > 1
                     ? ", gathered in float8"
                     : "",
                 run.config.quantize.linear.float8.emulate ? ", emulated" : "");
  if (run.meshes.pp.size() > 1)
    spdlog::info("pipeline {}: {}", run.config.parallelism.pipeline_parallel_schedule,
                 config::pipeline_plan(run.config, spec.stats.num_layers).text(run.meshes.pp.local_rank("pp")));
}

}  // namespace

RunParts build_run(RunInputs inputs) {
  const auto& config = inputs.config;
  RunParts run(config, inputs.world, inputs.meshes);
  // Metrics come first: the throughput of the first row counts from here.
  run.shape = dist::RunShape::of(config, run.world.size());
  run.metrics = std::make_unique<metrics::MetricsProcessor>(
      metrics_options(config, inputs.spec, run.shape.dims, run.world.device()),
      std::vector<std::unique_ptr<metrics::MetricsSink>>());
  run.events = std::make_unique<metrics::EventLog>(config.job.dump_folder, run.world.rank() == 0);
  run.data = std::move(inputs.data);
  build_model_and_optimizer(run, inputs.spec, inputs.tokenizer);
  build_checkpointer(run, inputs);
  build_validation(run, std::move(inputs.held_out), std::move(inputs.prompts));
  run.rollback = std::make_unique<Rollback>(Rollback::Parts{.checkpointer = *run.checkpointer,
                                                            .state = *run.state,
                                                            .metrics = *run.metrics,
                                                            .events = *run.events,
                                                            .validator = run.validator.get()});
  run.step = std::make_unique<TrainStep>(
      TrainStep::Parts{.forward_backward = *run.forward_backward,
                       .optimizer = *run.optimizer,
                       .schedule = *run.schedule,
                       .grad_scaler = run.grad_scaler.get(),
                       .checkpointer = *run.checkpointer,
                       .world = run.world.group(),
                       .stages = {run.meshes.pp.group(), run.parameters->owned(run.world.device())},
                       .base_lr = config.optimizer.lr,
                       .max_norm = config.training.max_norm});
  add_guests(run, inputs.spec, inputs.tokenizer, std::move(inputs.tasks), inputs.folder_lock.get());
  announce(run, inputs.spec);
  return run;
}

}  // namespace titan::train
