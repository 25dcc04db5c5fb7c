#include "train/guests/scores/task_evaluation.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <utility>

#include "base/process/phase.h"
#include "parallel/fsdp/fully_shard.h"
#include "train/guests/evaluation.h"
#include "train/guests/stop_vote.h"

namespace titan::train {

metrics::TaskScores scores_of(const EvaluationTask& task, std::span<const double> log_likelihoods) {
  metrics::TaskScores out(task.name, task.num_items);
  for (const Score& score : task.scores(log_likelihoods))
    out.scores.emplace_back(task.name, score.name, score.value, score.error);
  return out;
}

TaskEvaluation::TaskEvaluation(Parts parts) : parts_(std::move(parts)) {
  for (const EvaluationTask& task : parts_.tasks)
    plans_.emplace_back(task.texts, ScoringOptions{.batch_size = parts_.options.local_batch_size,
                                                   .vocab_size = parts_.vocab_size,
                                                   .length_multiple = parts_.meshes.tp.size()});
}

bool TaskEvaluation::is_due(std::int64_t step) const {
  return step % parts_.options.freq == 0 || (parts_.options.at_last_step && step == parts_.last_step);
}

Verdict TaskEvaluation::after_step(const StepView& step) {
  const PhaseScope phase(Phase::kValidation);
  run_if_due(step.number);
  return Verdict::go_on();
}

void TaskEvaluation::run_if_due(std::int64_t step) {
  if (!is_due(step)) return;
  const auto begin = std::chrono::steady_clock::now();
  auto scores = pass();
  if (!scores) {
    spdlog::info("the evaluation after step {} was cut short by a signal", step);
    return;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  parts_.metrics.log_evaluation({.step = step, .tasks = std::move(*scores), .seconds = seconds});
}

std::optional<std::vector<metrics::TaskScores>> TaskEvaluation::pass() {
  const Evaluation evaluation(parts_.model);
  std::vector<metrics::TaskScores> out;
  bool is_stopped = false;
  for (std::size_t i = 0; i < plans_.size() && !is_stopped; ++i) {
    const auto sums =
        plans_[i].compute(parts_.model, parts_.meshes.same_stage.device(), parts_.meshes.same_stage.group(),
                          [&] { return some_rank_must_stop(parts_.world); });
    is_stopped = !sums;
    if (sums) out.push_back(scores_of(parts_.tasks[i], *sums));
  }
  fsdp::reshard(parts_.model, /*recurse=*/true);
  return is_stopped ? std::nullopt : std::optional(std::move(out));
}

// Asks all ranks, since the folder with the rows may exist on one node only.
bool TaskEvaluation::owes(std::int64_t step, std::int64_t last_known) const {
  if (step == 0 || !is_due(step)) return false;
  auto known = at::full({1}, std::int64_t{last_known >= step}, at::TensorOptions().dtype(at::kLong));
  parts_.world.all_reduce(known, dist::ReduceOp::kSum).wait();
  return known.item<std::int64_t>() == 0;
}

}  // namespace titan::train
