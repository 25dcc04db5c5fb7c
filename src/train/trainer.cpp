#include "train/trainer.h"

#include <ATen/ATen.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <string>

#include "base/error.h"
#include "base/signal.h"
#include "base/text.h"
#include "checkpoint/dcp/step_folders.h"
#include "config/paths.h"
#include "distributed/device.h"
#include "distributed/dtype.h"
#include "metrics/console_sink.h"
#include "metrics/cpu_peak.h"
#include "metrics/device_facts.h"
#include "metrics/jsonl_sink.h"
#include "metrics/make_sinks.h"
#include "metrics/process_stats.h"
#include "train/setup.h"

namespace titan::train {
namespace {

// What rank 0 says as soon as a signal comes, for a step may take minutes.
constexpr const char* kSavesOnSignal = ": finishing this step and saving; once more ends at once, without saving\n";
constexpr const char* kStopsOnSignal =
    ": finishing this step; checkpoints are off, nothing will be saved; once more ends at once\n";

}  // namespace

Trainer::Trainer(const config::JobConfig& config, dist::World& world, const dist::Meshes& meshes, const TrainSpec& spec,
                 const TokenizerFacts& tokenizer, std::unique_ptr<BatchSource> data,
                 std::unique_ptr<BatchSource> held_out, Prompts prompts)
    : config_(config),
      world_(world),
      meshes_(meshes),
      metrics_(metrics_options(config, spec, world.device()), {}),
      data_(std::move(data)),
      shape_(dist::RunShape::of(config, world.size())),
      seed_(agree_on_seed(config.debug.seed, world.group())),
      model_([&] {
        apply_debug(config.debug, seed_);
        return build_model(spec, tokenizer.document_end,
                           {meshes, config.training, config.parallelism, config.activation_checkpoint});
      }()),
      optimizer_(build_optimizer(*model_, config.optimizer)),
      schedule_(build_lr_schedule(config.lr_scheduler, config.training.steps)),
      grad_scaler_(uses_float16(config.training) ? std::make_optional<optim::GradScaler>(world.device())
                                                 : std::nullopt),
      record_(config, tokenizer.fingerprint),
      state_({model_.get(), &optimizer_, &schedule_, grad_scaler_ ? &*grad_scaler_ : nullptr, config.optimizer.lr,
              data_.get(), &metrics_, &record_, world.rank(), world.size()}),
      checkpoint_ranks_(world.group()),
      background_ranks_(config.checkpoint.async_mode == "disabled" ? world.group() : world.own_group("checkpoint")),
      checkpointer_(config.checkpoint, run_facts(config, spec), checkpoint_ranks_, state_, &background_ranks_) {
  if (!prompts.prompts.empty())
    samples_.emplace(std::move(prompts), config.validation.prompt_tokens, config.training.seq_len, *model_,
                     meshes.batch);
  if (held_out) {
    validator_.emplace(config.validation, std::move(held_out), *model_, meshes, metrics_);
    checkpointer_.set_keep_rule([this](const std::vector<int>& steps) { return validator_->best_of(steps); });
  }
  spdlog::info("{}: {} parameters, {} on this rank, {}, {} of {} tokens a step", spec.name,
               with_thousands(spec.stats.num_parameters), with_thousands([&] {
                 std::int64_t local = 0;
                 for (const auto& parameter : model_->named_parameters()) local += parameter.tensor().numel();
                 return local;
               }()),
               counted(world.size(), "rank"), counted(shape_.sequences_per_step, "sequence"), config.training.seq_len);
}

Trainer::End Trainer::train() {
  if (run_.config.checkpoint.create_seed_checkpoint) {
    draw_weights(*run_.model, run_.world.device(), run_.seed);
    run_.checkpointer->save_seed();
    run_.checkpointer->finish();
    return End::kCompleted;
  }
  if (!start()) return End::kCompleted;
  std::int64_t& finished_steps = run_.state->step;
  while (finished_steps < run_.config.training.steps) {
    for (const auto& observer : run_.observers) observer->before_step();
    const StepInput input = fetch();
    const StepOutput output = run_.step->run(input, finished_steps);
    ++finished_steps;
    if (const auto end = show({finished_steps, input, output})) return finish(*end);
  }
  return finish(End::kCompleted);
}

// Weights, and everything that depends on where the run goes on from. False where nothing is left to train.
bool Trainer::start() {
  const auto loaded = run_.checkpointer->load();
  if (has_nothing_to_do(loaded.is_finished ? *loaded.step : finished_steps())) return false;
  if (!loaded.has_weights) draw_weights(*run_.model, run_.world.device(), run_.seed);
  attach_sinks();
  announce_start();
  // There is something to save soon, and a look for them between steps.
  remember_signals(world_.rank() > 0 ? "" : checkpointer_.saves() ? kSavesOnSignal : kStopsOnSignal);
  const auto last_step = config_.training.steps;
  const auto first_step = state_.step + 1;  // of this process
  while (state_.step < last_step) {
    metrics_.begin_step();
    const StepData data = fetch_step_data();
    const StepOutput output = train_step(data);
    if (++state_.step == first_step) after_first_step();
    metrics_.end_step(state_.step);
    if (metrics_.should_log(state_.step)) log_step(output);
    if (has_diverged(data, output)) return stop_diverged(output);
    const bool saved = checkpointer_.save(static_cast<int>(state_.step), static_cast<int>(last_step), data.save_due);
    if (data.stop && state_.step < last_step) return stop_early(saved);
    if (validator_ && validator_->run_if_due(state_.step) && samples_) samples_->log(state_.step);
  }
  checkpointer_.finish();
  if (samples_) samples_->log(state_.step);
  announce_end();
  return End::kCompleted;
}

void Trainer::announce_start() const {
  const auto tokens = shape_.sequences_per_step * config_.training.seq_len;
  const std::string checkpoints = checkpointer_.saves()
                                      ? "a checkpoint every " + std::to_string(config_.checkpoint.interval) +
                                            " steps in " + config::checkpoint_folder(config_).string()
                                      : "no checkpoints";
  if (const auto data = data_->description(); !data.empty()) spdlog::info("data: {}", data);
  spdlog::info("training steps {} to {} of {} tokens each; results go to {}, {}", state_.step + 1,
               config_.training.steps, with_thousands(tokens), config_.job.dump_folder, checkpoints);
}

void Trainer::announce_end() const {
  const std::string checkpoint =
      checkpointer_.saves()
          ? ", the last checkpoint is " +
                checkpoint::step_folder(config::checkpoint_folder(config_), static_cast<int>(state_.step)).string()
          : "";
  spdlog::info("training completed: {} steps, this start took {}{}; metrics.jsonl and config.toml are in {}{}",
               state_.step, format_duration(metrics::seconds_since_process_start()), last_loss_,
               config_.job.dump_folder, checkpoint);
}

bool Trainer::has_nothing_to_do(std::int64_t finished_steps) const {
  const auto last_step = config_.training.steps;
  if (finished_steps < last_step) return false;
  spdlog::info("{} is already at step {} of {}: nothing to do. To train on, raise training.steps",
               config_.job.dump_folder, finished_steps, last_step);
  return true;
}

bool Trainer::has_nothing_to_do(std::int64_t finished_steps) const {
  const auto last_step = run_.config.training.steps;
  if (finished_steps < last_step) return false;
  spdlog::info("{} is already at step {} of {}: nothing to do. To train on, raise training.steps",
               run_.config.job.dump_folder, finished_steps, last_step);
  return true;
}

void Trainer::attach_sinks() {
  if (run_.world.rank() != 0) return;
  run_.metrics->set_sinks(metrics::make_sinks(run_.config, finished_steps()));
  if (run_.validator)
    run_.validator->restore(metrics::read_validation_losses(run_.config.job.dump_folder, finished_steps()));
}

void Trainer::announce_start() const {
  const auto& config = run_.config;
  const auto tokens = run_.sequences_per_step() * config.training.seq_len;
  const std::string checkpoints = run_.checkpointer->saves()
                                      ? "a checkpoint every " + std::to_string(config.checkpoint.interval) +
                                            " steps in " + config::checkpoint_folder(config).string()
                                      : "no checkpoints";
  if (const auto data = run_.data->description(); !data.empty()) spdlog::info("data: {}", data);
  spdlog::info("training steps {} to {} of {} tokens each; results go to {}, {}", finished_steps() + 1,
               config.training.steps, with_thousands(tokens), config.job.dump_folder, checkpoints);
}

// All microbatches are fetched before the first forward: the loss is divided by the tokens of all of them.
Trainer::StepData Trainer::fetch_step_data() {
  StepData data;
  std::int64_t valid = 0;
  for (std::int64_t i = 0; i < shape_.accumulation_steps; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    auto batch = run_.data->next();
    if (!batch) throw DataError("the data ended before training.steps; use a larger dataset or fewer steps");
    input.local_valid_tokens += count_valid_tokens(*batch);
    run_.metrics->add_data(batch->labels.numel(),
                           std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    input.microbatches.push_back(std::move(*batch));
  }
  // One exchange a step on the host: token counts, whether some rank was asked to stop, whether it is time to save.
  auto counts = at::tensor({input.local_valid_tokens, std::int64_t{stop_requested().has_value()},
                            std::int64_t{run_.checkpointer->is_time_due()}},
                           at::kLong);
  run_.meshes.batch.group().all_reduce(counts, dist::ReduceOp::kSum).wait();
  input.global_valid_tokens = counts[0].item<std::int64_t>();
  input.stop = counts[1].item<std::int64_t>() > 0;
  input.save_due = counts[2].item<std::int64_t>() > 0;
  return input;
}

void Trainer::log_step(const StepOutput& output) {
  const auto host = [](const at::Tensor& tensor) { return static_cast<double>(tensor.item<float>()); };
  auto& group = meshes_.loss.group();
  auto mean_loss = output.loss.to(at::kFloat).clone();
  auto max_loss =
      mean_loss * static_cast<double>(output.global_valid_tokens) / static_cast<double>(output.local_valid_tokens);
  const auto bad_records = data_->bad_records();
  auto counts = at::tensor({metrics_.tokens_seen(), bad_records.value_or(0)}, at::kLong);
  group.all_reduce(mean_loss, dist::ReduceOp::kSum).wait();
  group.all_reduce(max_loss, dist::ReduceOp::kMax).wait();
  meshes_.batch.group().all_reduce(counts, dist::ReduceOp::kSum).wait();
  std::optional<double> grad_scale;
  if (output.grad_scale.defined()) grad_scale = host(output.grad_scale);
  metrics_.log({.step = state_.step,
                .loss = host(mean_loss),
                .max_loss = host(max_loss),
                .grad_norm = host(output.grad_norm),
                .lr = output.lr,
                .tokens_seen = counts[0].item<std::int64_t>(),
                .grad_scale = grad_scale,
                .bad_records = bad_records ? std::optional(counts[1].item<std::int64_t>()) : std::nullopt});
  last_loss_ = fmt::format(", loss {:.5f} at step {}", host(mean_loss), state_.step);
  if (grad_scale) watch_grad_scale(*grad_scale);
  // Now, that the first line is out: measuring takes longer than a small step. Products in float16 are made one by one
  // on most processors, which is no peak: mfu stays unknown.
  if (!metrics_.has_peak_flops() && world_.device().is_cpu() && config_.training.mixed_precision_param != "float16") {
    metrics_.set_peak_flops(metrics::measure_cpu_peak_flops(dist::dtype_of(config_.training.mixed_precision_param)));
  }
  return std::nullopt;
}

Trainer::End Trainer::finish(End end) {
  for (const auto& observer : run_.observers) observer->finish(end, finished_steps());
  if (end == End::kCompleted) announce_end();
  return end;
}

void Trainer::announce_end() const {
  const auto& config = run_.config;
  const std::string checkpoint =
      run_.checkpointer->saves()
          ? ", the last checkpoint is " +
                checkpoint::step_folder(config::checkpoint_folder(config), static_cast<int>(finished_steps())).string()
          : "";
  const auto& last = run_.metrics->last();
  spdlog::info("training completed: {} steps, this start took {}{}; metrics.jsonl and config.toml are in {}{}",
               finished_steps(), format_duration(metrics::seconds_since_process_start()),
               last ? fmt::format(", loss {:.5f} at step {}", last->loss, last->step) : "", config.job.dump_folder,
               checkpoint);
}

}  // namespace titan::train
