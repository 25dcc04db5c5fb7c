// metrics.jsonl, validation.jsonl and evaluation.jsonl: one JSON object per line. Numbers read back exactly. NaN and
// infinities, which JSON does not have, are the strings "NaN", "Infinity" and "-Infinity"; null would hide which it
// was. "mfu" is null if the device's peak is not known.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "metrics/history/history_sink.h"

namespace titan::metrics {

class JsonlSink : public HistorySink {
 public:
  // Writes `folder`/metrics.jsonl, `folder`/validation.jsonl with one object per validation pass, and
  // `folder`/evaluation.jsonl with one per pass over evaluation.tasks, from the end of the first step on.
  JsonlSink(const std::filesystem::path& folder, std::int64_t finished_steps);
  void log(const StepMetrics& metrics) override;
  void log_validation(const ValidationMetrics& metrics) override;
  void log_evaluation(const EvaluationMetrics& metrics) override;
  void on_step(std::int64_t step) override;
  void roll_back(std::int64_t finished_steps) override;
  void check() override;

 private:
  StepHistory evaluations_;
};

// Returns the last step up to `finished_steps` that has a row in `folder`/evaluation.jsonl; 0 if there is none.
std::int64_t last_evaluated_step(const std::filesystem::path& folder, std::int64_t finished_steps);

// Returns step -> loss of the validation passes up to `finished_steps` in `folder`/validation.jsonl. If a step has
// several rows, the last counts. NaN if a loss was not finite.
std::map<std::int64_t, double> read_validation_losses(const std::filesystem::path& folder, std::int64_t finished_steps);

// Returns the rows of `folder`/metrics.jsonl in order. Sets only step, loss (NaN if it is not a number there),
// tokens_seen, unix_time and time_spent (if the row has it). Skips lines that are not rows.
std::vector<StepMetrics> read_steps(const std::filesystem::path& folder);

// Returns the time that the run in `folder` has spent before this process, which began at `start_unix_time` (seconds
// since 1970) and resumes after `finished_steps`, from metrics.jsonl (see time_spent.h). Zero for a fresh start. Call
// before the first step ends, while the rows of steps that run again are still there.
TimeSpent read_earlier_time(const std::filesystem::path& folder, std::int64_t finished_steps, double start_unix_time);

// Returns the largest step in `folder`/metrics.jsonl or validation.jsonl, or nullopt without a row.
std::optional<std::int64_t> last_logged_step(const std::filesystem::path& folder);

}  // namespace titan::metrics
