// Scores the model on tasks at regular steps. Training is the same to the last bit with it and without.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "config/job_config.h"
#include "contract/evaluation_task.h"
#include "contract/train_contract.h"
#include "distributed/parallel_dims.h"
#include "metrics/metrics_processor.h"
#include "train/guests/scores/log_likelihoods.h"
#include "train/step/step_guest.h"

namespace titan::train {

// Returns the scores of one task. `log_likelihoods` are those of its texts.
metrics::TaskScores scores_of(const EvaluationTask& task, std::span<const double> log_likelihoods);

class TaskEvaluation : public StepGuest {
 public:
  struct Parts {
    const config::Evaluation& options;
    std::vector<EvaluationTask> tasks;  // at least one; the same on all ranks
    std::int64_t vocab_size;            // of the model
    std::int64_t last_step;             // training.steps
    LanguageModel& model;
    dist::ProcessGroup& world;  // all ranks
    const dist::Meshes& meshes;
    metrics::MetricsProcessor& metrics;
  };
  // All that is referred to must outlive this.
  explicit TaskEvaluation(Parts parts);

  // Runs a pass if one is due, and reports its scores.
  Verdict after_step(const StepView& step) override;

  // Runs a pass if `step` is due: every evaluation.freq steps and, with evaluation.at_last_step, after the last one. A
  // signal to stop ends it without a result. Gradients, random numbers and the training data are untouched, and every
  // parameter is sharded again on return. Collective.
  void run_if_due(std::int64_t step);

  // True if the pass after `step` is due and no rank knows of it: the run ended between that step's checkpoint and the
  // pass. `last_known`: the last step that this rank's folder has scores of. Collective.
  bool owes(std::int64_t step, std::int64_t last_known) const;

 private:
  bool is_due(std::int64_t step) const;
  std::optional<std::vector<metrics::TaskScores>> pass();

  Parts parts_;
  std::vector<LogLikelihoods> plans_;  // one per task
};

}  // namespace titan::train
