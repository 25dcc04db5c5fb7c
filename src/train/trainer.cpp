#include "train/trainer.h"

#include <ATen/ATen.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "base/signal.h"
#include "base/text.h"
#include "checkpoint/dcp/step_folders.h"
#include "config/paths.h"
#include "config/validate.h"
#include "distributed/device.h"
#include "distributed/dtype.h"
#include "metrics/cpu_peak.h"
#include "metrics/flops.h"
#include "metrics/jsonl_sink.h"
#include "metrics/make_sinks.h"
#include "metrics/process_stats.h"
#include "train/run_folder.h"
#include "train/setup.h"

namespace titan::train {
namespace {

metrics::MetricsOptions metrics_options(const config::JobConfig& config, const TrainSpec& spec, at::Device device) {
  metrics::MetricsOptions options;
  options.log_freq = config.metrics.log_freq;
  options.flops_per_token = metrics::flops_per_token(spec.stats, config.training.seq_len);
  if (device.is_cpu()) return options;
  const auto* module = dist::accelerator();
  options.peak_flops =
      metrics::device_peak_flops(module->device_name(device.index()), config.training.mixed_precision_param);
  options.memory = [module, index = device.index()] {
    const auto peak = module->peak_reserved_bytes(index);
    module->reset_peak_memory(index);
    return metrics::MemoryUsage{static_cast<std::uint64_t>(peak),
                                static_cast<std::uint64_t>(module->device_capacity_bytes(index))};
  };
  return options;
}

// What rank 0 says as soon as a signal comes, for a step may take minutes.
constexpr const char* kSavesOnSignal = ": finishing this step and saving; once more ends at once, without saving\n";
constexpr const char* kStopsOnSignal =
    ": finishing this step; checkpoints are off, nothing will be saved; once more ends at once\n";

}  // namespace

Trainer::Trainer(const config::JobConfig& config, dist::World& world, const dist::Meshes& meshes, const TrainSpec& spec,
                 std::unique_ptr<BatchSource> data, std::unique_ptr<BatchSource> held_out, Prompts prompts)
    : config_(config),
      world_(world),
      meshes_(meshes),
      metrics_(metrics_options(config, spec, world.device()), {}),
      data_(std::move(data)),
      accumulation_steps_(config::num_accumulation_steps(config, world.size())),
      seed_(agree_on_seed(config.debug.seed, world.group())),
      model_([&] {
        apply_debug(config.debug, seed_);
        return build_model(spec, meshes.fsdp, config.training, config.parallelism, config.activation_checkpoint);
      }()),
      forward_backward_(make_forward_backward(*model_, world.device(), spec.loss)),
      optimizer_(build_optimizer(*model_, config.optimizer)),
      schedule_(build_lr_schedule(config.lr_scheduler, config.training.steps)),
      grad_scaler_(uses_float16(config.training) ? std::make_optional<optim::GradScaler>(world.device())
                                                 : std::nullopt),
      record_(config, spec.tokenizer_fingerprint),
      state_({model_.get(), &optimizer_, &schedule_, grad_scaler_ ? &*grad_scaler_ : nullptr, config.optimizer.lr,
              data_.get(), config.training.local_batch_size, &metrics_, &meshes.batch, &record_, world.rank(),
              world.size()}),
      checkpoint_ranks_(world.group()),
      background_ranks_(config.checkpoint.async_mode == "disabled" ? world.group() : world.own_group("checkpoint")),
      checkpointer_(checkpoint_options(config, spec), checkpoint_ranks_, state_, &background_ranks_) {
  if (!prompts.prompts.empty())
    samples_.emplace(std::move(prompts), config.validation.prompt_tokens, config.training.seq_len, *model_,
                     meshes.batch);
  if (held_out) {
    validator_.emplace(config.validation, std::move(held_out), *model_, *forward_backward_, meshes.batch, metrics_);
    checkpointer_.set_keep_rule([this](const std::vector<int>& steps) { return validator_->best_of(steps); });
  }
  spdlog::info("{}: {} parameters, {} on this rank, {}, {} of {} tokens a step", spec.name,
               with_thousands(spec.stats.num_parameters), with_thousands([&] {
                 std::int64_t local = 0;
                 for (const auto& parameter : model_->named_parameters()) local += parameter.tensor().numel();
                 return local;
               }()),
               counted(world.size(), "rank"),
               counted(accumulation_steps_ * config.training.local_batch_size * meshes.batch.size(), "sequence"),
               config.training.seq_len);
}

Trainer::End Trainer::train() {
  if (config_.checkpoint.create_seed_checkpoint) {
    draw_weights(*model_, world_.device(), seed_);
    checkpointer_.save_seed();
    checkpointer_.finish();
    return End::kCompleted;
  }
  const auto loaded = checkpointer_.load();
  if (has_nothing_to_do(loaded.is_finished ? *loaded.step : state_.step)) return End::kCompleted;
  if (!loaded.has_weights) draw_weights(*model_, world_.device(), seed_);
  attach_sinks(state_.step);
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
  const auto tokens =
      accumulation_steps_ * config_.training.local_batch_size * meshes_.batch.size() * config_.training.seq_len;
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

void Trainer::attach_sinks(std::int64_t finished_steps) {
  if (world_.rank() != 0) return;
  metrics_.set_sinks(metrics::make_sinks(config_, finished_steps));
  if (validator_) validator_->restore(metrics::read_validation_losses(config_.job.dump_folder, finished_steps));
}

// All microbatches are fetched before the first forward: the loss is divided by the tokens of all of them.
Trainer::StepData Trainer::fetch_step_data() {
  StepData data;
  std::int64_t valid = 0;
  for (std::int64_t i = 0; i < accumulation_steps_; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    auto batch = data_->next();
    if (!batch) throw DataError("the data ended before training.steps; use a larger dataset or fewer steps");
    valid += count_valid_tokens(*batch);
    metrics_.add_data(batch->labels.numel(),
                      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    data.microbatches.push_back(std::move(*batch));
  }
  // One exchange a step on the host: token counts, whether some rank was asked to stop, whether it is time to save.
  auto counts = at::tensor(
      {valid, std::int64_t{stop_requested().has_value()}, std::int64_t{checkpointer_.is_time_due()}}, at::kLong);
  meshes_.batch.group().all_reduce(counts, dist::ReduceOp::kSum).wait();
  data.local_valid_tokens = valid;
  data.global_valid_tokens = counts[0].item<std::int64_t>();
  data.stop = counts[1].item<std::int64_t>() > 0;
  data.save_due = counts[2].item<std::int64_t>() > 0;
  return data;
}

void Trainer::log_step(const StepOutput& output) {
  const auto host = [](const at::Tensor& tensor) { return static_cast<double>(tensor.item<float>()); };
  auto& group = meshes_.batch.group();
  auto mean_loss = output.loss.to(at::kFloat).clone();
  auto max_loss =
      mean_loss * static_cast<double>(output.global_valid_tokens) / static_cast<double>(output.local_valid_tokens);
  const auto bad_records = data_->bad_records();
  auto counts = at::tensor({metrics_.tokens_seen(), bad_records.value_or(0)}, at::kLong);
  group.all_reduce(mean_loss, dist::ReduceOp::kSum).wait();
  group.all_reduce(max_loss, dist::ReduceOp::kMax).wait();
  group.all_reduce(counts, dist::ReduceOp::kSum).wait();
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
  // Now, that the first line is out: measuring takes longer than a small step. Products in float16 are made one by one
  // on most processors, which is no peak: mfu stays unknown.
  if (!metrics_.has_peak_flops() && world_.device().is_cpu() && config_.training.mixed_precision_param != "float16") {
    metrics_.set_peak_flops(metrics::measure_cpu_peak_flops(dist::dtype_of(config_.training.mixed_precision_param)));
  }
}

// Once its gradients hold a NaN, so do the weights after the step, and every checkpoint from there on. The norm is that
// of all ranks, so all decide alike. Reading it makes a GPU's queue of work run dry: there only where the step is read,
// or kept, anyway. The gradient scaler of float16 leaves such steps out by itself.
bool Trainer::has_diverged(const StepData& data, const StepOutput& output) {
  const bool is_read =
      world_.device().is_cpu() || metrics_.should_log(state_.step) || data.save_due || data.stop ||
      checkpointer_.should_save(static_cast<int>(state_.step), static_cast<int>(config_.training.steps));
  if (!is_read || grad_scaler_ || warned_of_nan_ || std::isfinite(output.grad_norm.item<float>())) return false;
  if (config_.training.on_nan == "stop") return true;
  warned_of_nan_ = true;
  if (world_.rank() == 0)
    spdlog::warn(
        "step {}: the norm of the gradients is {}, so the weights are no use from here on; training goes on and saves "
        "them, as training.on_nan = \"warn\" asks",
        state_.step, output.grad_norm.item<float>());
  return false;
}

Trainer::End Trainer::stop_diverged(const StepOutput& output) {
  if (!metrics_.should_log(state_.step)) log_step(output);
  checkpointer_.finish();
  if (world_.rank() == 0)
    spdlog::error(
        "training has diverged: at step {} the norm of the gradients is {}, with optimizer.lr = {} and a learning rate "
        "of "
        "{:.3g}. It stops here, and checkpoints are of steps before. Try a smaller optimizer.lr, more "
        "lr_scheduler.warmup_steps or a smaller training.max_norm; training.on_nan = \"warn\" goes on all the same",
        state_.step, output.grad_norm.item<float>(), config_.optimizer.lr, output.lr);
  return End::kDiverged;
}

// A first step waits for everything that is made on first use; later ones do not, so a hang shows sooner. The folder is
// this run's from here on: its rows follow its configuration.
void Trainer::after_first_step() {
  if (world_.rank() == 0) write_run_config(config_);
  world_.group().barrier();
  world_.set_timeout(std::chrono::seconds(config_.comm.train_timeout_seconds));
}

// The step whose data was fetched already is done: no sample is lost.
Trainer::End Trainer::stop_early(bool saved) {
  const auto signal = stop_requested();
  const std::string why = signal ? signal_name(*signal) : "another rank was asked to stop";
  if (!checkpointer_.saves()) {
    if (world_.rank() == 0)
      spdlog::warn("stopped after step {} ({}); checkpoints are not enabled, nothing was saved", state_.step, why);
    return End::kStoppedUnsaved;
  }
  if (!saved) checkpointer_.save_full(static_cast<int>(state_.step));
  checkpointer_.finish();
  spdlog::info("stopped after step {} of {} ({}); saved. Start the same command again to go on", state_.step,
               config_.training.steps, why);
  return End::kStopped;
}

}  // namespace titan::train
