#include "train/trainer.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/process/common_error.h"
#include "base/process/phase.h"
#include "base/process/signal.h"
#include "base/run_layout.h"
#include "base/text.h"
#include "checkpoint/dcp/step_folders.h"
#include "config/paths.h"
#include "metrics/jsonl_sink.h"
#include "metrics/make_sinks.h"
#include "metrics/process_stats.h"
#include "nn/lora_linear.h"
#include "train/setup.h"

namespace titan::train {
namespace {

// Rank 0 prints one of these as soon as a signal arrives, since a step may take minutes.
constexpr const char* kSavesOnSignal = ": finishing this step and saving; once more ends at once, without saving\n";
constexpr const char* kStopsOnSignal =
    ": finishing this step; checkpoints are off, nothing will be saved; once more ends at once\n";

}  // namespace

Trainer::End Trainer::train() {
  nn::draw_adapters(*run_.model, run_.seed);  // a checkpoint that has adapters replaces them
  if (run_.config.checkpoint.create_seed_checkpoint) {
    draw_weights(*run_.model, run_.world.device(), run_.seed);
    run_.checkpointer->save_seed();
    run_.checkpointer->finish();
    return End::kCompleted;
  }
  if (!start()) {
    run_.checkpointer->remove_copies();
    return End::kCompleted;
  }
  const PhaseScope between_steps(Phase::kIdle);
  std::int64_t& finished_steps = run_.state->step;
  while (finished_steps < run_.config.training.steps) {
    phase_log().set_step(finished_steps + 1);
    for (const auto& guest : run_.guests) guest->before_step();
    const StepInput input = fetch();
    const StepOutput output = run_.step->run(input, finished_steps, run_.guests);
    ++finished_steps;
    const Verdict verdict = show({finished_steps, input, output});
    if (verdict.ends()) return finish(verdict.end());
  }
  return finish(End::kCompleted);
}

// Loads or draws the weights, and sets up what depends on the step to resume from. Returns false if nothing is left to
// train.
bool Trainer::start() {
  const auto loaded = load();
  const bool owes_pass = owes_validation(loaded), owes_scores = owes_evaluation(loaded);
  if (!owes_pass && !owes_scores && has_nothing_to_do(loaded.is_finished ? *loaded.step : finished_steps()))
    return false;
  if (!loaded.has_weights) draw_weights(*run_.model, run_.world.device(), run_.seed);
  attach_sinks();
  announce_start();
  // From here on signals are only remembered: there is something to save, and the loop checks for them between steps.
  remember_signals(run_.world.rank() > 0 ? "" : run_.checkpointer->saves() ? kSavesOnSignal : kStopsOnSignal);
  if (owes_pass) {
    const PhaseScope phase(Phase::kValidation);
    run_.validator->run_if_due(finished_steps());
  }
  if (owes_scores) {
    const PhaseScope phase(Phase::kValidation);
    run_.evaluation->run_if_due(finished_steps());
  }
  return true;
}

checkpoint::Loaded Trainer::load() {
  const PhaseScope phase(Phase::kLoad);
  return run_.checkpointer->load();
}

// True if the validation pass after the last finished step is missing. It follows the step's checkpoint, and a run may
// end in between.
bool Trainer::owes_validation(const checkpoint::Loaded& loaded) const {
  if (!run_.validator || loaded.is_finished) return false;
  run_.validator->restore(metrics::read_validation_losses(run_.config.job.dump_folder, finished_steps()));
  return run_.validator->owes(finished_steps());
}

// The same for the scores on evaluation.tasks.
bool Trainer::owes_evaluation(const checkpoint::Loaded& loaded) const {
  if (!run_.evaluation || loaded.is_finished) return false;
  const auto last_known = metrics::last_evaluated_step(run_.config.job.dump_folder, finished_steps());
  return run_.evaluation->owes(finished_steps(), last_known);
}

bool Trainer::has_nothing_to_do(std::int64_t finished_steps) const {
  const auto last_step = run_.config.training.steps;
  if (finished_steps < last_step) return false;
  spdlog::info("{} is already at step {} of {}: nothing to do. To train on, raise training.steps",
               run_.config.job.dump_folder, finished_steps, last_step);
  return true;
}

void Trainer::attach_sinks() {
  log_to_file(std::filesystem::path(run_.config.job.dump_folder) / layout::kLogsFolder /
              ("rank_" + std::to_string(run_.world.rank()) + ".log"));
  run_.metrics->set_sinks(metrics::make_sinks(run_.config, finished_steps(), {run_.world.rank(), run_.world.size()}));
  if (run_.world.rank() != 0) return;
  run_.metrics->set_earlier_time(
      metrics::read_earlier_time(run_.config.job.dump_folder, finished_steps(), metrics::unix_time_of_process_start()));
}

void Trainer::announce_start() const {
  const auto& config = run_.config;
  const auto tokens = run_.shape.sequences_per_step * config.training.seq_len;
  const std::string checkpoints =
      run_.checkpointer->saves()
          ? "a checkpoint every " + std::to_string(config.checkpoint.interval) + " steps in " +
                config::checkpoint_folder(config).string() +
                (config.checkpoint.memory_interval > 0
                     ? ", a copy in memory every " + std::to_string(config.checkpoint.memory_interval) + " steps"
                     : "")
          : "no checkpoints";
  if (const auto data = run_.data->description(); !data.empty()) spdlog::info("data: {}", data);
  if (finished_steps() >= config.training.steps) {
    spdlog::info(
        "the run ended before the validation or evaluation of its last step, {}, which is all that is left to do",
        finished_steps());
    return;
  }
  spdlog::info("training steps {} to {} of {} tokens each; results go to {}, {}", finished_steps() + 1,
               config.training.steps, with_thousands(tokens), config.job.dump_folder, checkpoints);
}

// Fetches all microbatches before the first forward: the loss is divided by the tokens of all of them.
StepInput Trainer::fetch() {
  const PhaseScope phase(Phase::kData);
  StepInput input;
  for (std::int64_t i = 0; i < run_.shape.accumulation_steps; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    auto batch = run_.data->next();
    if (!batch) throw DataError("the data ended before training.steps; use a larger dataset or fewer steps");
    input.local_valid_tokens += count_valid_tokens(*batch);
    run_.metrics->add_data(batch->labels.numel(),
                           std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    input.microbatches.push_back(std::move(*batch));
  }
  // One all-reduce per step on the host: token counts, whether some rank was asked to stop, whether a save is due,
  // whether rank 0 can still write its rows, whether a save is still being written.
  auto counts =
      at::tensor({input.local_valid_tokens, std::int64_t{stop_requested().has_value()},
                  std::int64_t{run_.checkpointer->is_time_due()}, std::int64_t{!run_.metrics->record_failure().empty()},
                  std::int64_t{run_.checkpointer->is_saving()}},
                 at::kLong);
  run_.world.group().all_reduce(counts, dist::ReduceOp::kSum).wait();
  // The ranks that share a batch have counted the same tokens.
  input.global_valid_tokens = counts[0].item<std::int64_t>() / run_.shape.dims.ranks_of_batch();
  input.record_failed = counts[3].item<std::int64_t>() > 0;
  input.stop = counts[1].item<std::int64_t>() > 0 || input.record_failed;
  input.save_due = counts[2].item<std::int64_t>() > 0;
  input.is_saving = counts[4].item<std::int64_t>() > 0;
  return input;
}

Verdict Trainer::show(const StepView& step) {
  for (const auto& guest : run_.guests)
    if (const Verdict verdict = guest->after_step(step); !verdict.goes_on()) return verdict;
  return Verdict::go_on();
}

// Waits for the device: its pending work may still fail, and then the run must not end as a success.
void Trainer::wait_for_device() const {
  const auto device = run_.world.device();
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

Trainer::End Trainer::finish(End end) {
  wait_for_device();
  for (const auto& guest : run_.guests) guest->finish(end, finished_steps());
  spdlog::info("{}", metrics::format_goodput(run_.metrics->time_spent()));
  if (end != End::kCompleted) return end;
  check_record();
  announce_end();
  return end;
}

// A run whose last rows could not be written is not a success, though its last state is saved.
void Trainer::check_record() const {
  const std::string failure = run_.world.group().broadcast_bytes(run_.metrics->record_failure(), 0);
  if (!failure.empty())
    throw Error(
        common_error(failure + ": the rows of the last steps are missing. Training itself is complete, at step " +
                     std::to_string(finished_steps()) + (run_.checkpointer->saves() ? ", and saved" : "")),
        kExitFailed);
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
