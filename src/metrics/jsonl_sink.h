// metrics.jsonl and validation.jsonl: one JSON object a line. Numbers read back exactly. JSON has no NaN and no
// infinity, and null would hide which it was, so these are the strings "NaN", "Infinity" and "-Infinity". "mfu" is null
// when the device's peak is not known.
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
  // Writes `folder`/metrics.jsonl, and `folder`/validation.jsonl with one object a validation pass, from the end of the
  // first step on.
  JsonlSink(const std::filesystem::path& folder, std::int64_t finished_steps);
  void log(const StepMetrics& metrics) override;
  void log_validation(const ValidationMetrics& metrics) override;
};

// step -> loss of the validation passes up to `finished_steps` in `folder`/validation.jsonl; of a step with several
// rows the last. NaN where a loss was not finite.
std::map<std::int64_t, double> read_validation_losses(const std::filesystem::path& folder, std::int64_t finished_steps);

// The rows of `folder`/metrics.jsonl in their order: step, loss (NaN for what is not a number there), tokens_seen,
// unix_time and time_spent (where the row has it) alone are filled. Lines that are not rows are left out.
std::vector<StepMetrics> read_steps(const std::filesystem::path& folder);

// What the run in `folder` has spent before the process that began at `start_unix_time` (seconds since 1970) goes on
// from `finished_steps`, by its metrics.jsonl: time_spent.h. Nothing spent for a fresh start. Before the first step ends,
// while rows that run again are still there.
TimeSpent read_earlier_time(const std::filesystem::path& folder, std::int64_t finished_steps, double start_unix_time);

// The largest step in `folder`/metrics.jsonl or validation.jsonl; nothing without a row.
std::optional<std::int64_t> last_logged_step(const std::filesystem::path& folder);

}  // namespace titan::metrics
