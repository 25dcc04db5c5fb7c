// The scores of one pass over the tasks of evaluation.tasks, and their rows. Each metric is described only here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "metrics/rows/step_metrics.h"

namespace titan::metrics {

// One score of a task.
struct TaskScore {
  TaskScore(const std::string& task, std::string score_, double value_, std::optional<double> error_)
      : score(std::move(score_)),
        name(task + "/" + score),
        error_name(name + "_stderr"),
        tag("evaluation/" + name),
        value(value_),
        error(error_) {}

  std::string score;            // "acc"
  std::string name;             // "arc_easy/acc", unique in a row
  std::string error_name;       // "arc_easy/acc_stderr"
  std::string tag;              // in TensorBoard: "evaluation/arc_easy/acc"
  double value;                 // a share from 0 to 1, a perplexity, or bits
  std::optional<double> error;  // standard error; nullopt if there is none
};

struct TaskScores {
  TaskScores(std::string task_, std::int64_t num_items_)
      : task(std::move(task_)), items_name(task + "/items"), num_items(num_items_) {}

  std::string task;        // "arc_easy"
  std::string items_name;  // "arc_easy/items"
  std::int64_t num_items;  // questions or documents
  std::vector<TaskScore> scores;
};

struct EvaluationMetrics {
  // Set by the caller of MetricsProcessor::log_evaluation().
  std::int64_t step = 0;
  std::vector<TaskScores> tasks = {};
  double seconds = 0;  // duration of the pass
  // Measured by MetricsProcessor.
  double unix_time = 0;
};

// Calls use(const Metric&, value) for every metric, in the order of the keys in a row of evaluation.jsonl.
template <typename Use>
void for_each_metric(const EvaluationMetrics& m, Use&& use) {
  use(Metric{.name = "step", .meaning = "the step after which the model was scored"}, m.step);
  for (const TaskScores& task : m.tasks) {
    for (const TaskScore& score : task.scores) {
      use(Metric{.name = score.name, .tag = score.tag, .meaning = "a score of a task (evaluation.md)"}, score.value);
      use(Metric{.name = score.error_name, .meaning = "its standard error"}, score.error);
    }
    use(Metric{.name = task.items_name, .meaning = "questions or documents that were scored"}, task.num_items);
  }
  use(Metric{.name = "seconds", .unit = "s", .meaning = "duration of the pass"}, m.seconds);
  use(Metric{.name = "unix_time", .unit = "s", .meaning = "when the pass ended, since 1970"}, m.unix_time);
}

}  // namespace titan::metrics
