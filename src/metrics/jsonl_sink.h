// metrics.jsonl and validation.jsonl: one JSON object a line. Numbers read back exactly. JSON has no NaN and no
// infinity, and null would hide which it was, so these are the strings "NaN", "Infinity" and "-Infinity". "mfu" is null
// when the device's peak is not known.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "metrics/step_metrics.h"

namespace titan::metrics {

// A history of steps that goes on after a resume: rows of an earlier run past the step it resumed from are dropped
// (their steps have run again), so every step has one row. One process writes a file at a time.
class JsonlHistory {
 public:
  // `finished_steps`: the step that training resumes after, 0 for a fresh start. Touches nothing: a start that fails
  // before its first step leaves what an earlier one wrote.
  JsonlHistory(std::filesystem::path path, std::int64_t finished_steps);
  ~JsonlHistory();
  JsonlHistory(const JsonlHistory&) = delete;
  JsonlHistory& operator=(const JsonlHistory&) = delete;

  // Drops those rows; once, later calls change nothing. What is dropped is said in the log, also a line that is not a
  // JSON object with a "step", such as the torn last line of a crash. The file is replaced in one step. The folder is made
  // where it is missing. Throws std::system_error naming the path.
  void begin();
  // Drops the rows past `finished_steps` now, those of this process too.
  void roll_back(std::int64_t finished_steps);
  // Begins where that has not happened. The line is with the operating system when this returns: it survives the end of
  // the process, not of the machine.
  void append(const nlohmann::ordered_json& row);

 private:
  std::filesystem::path path_;
  std::int64_t finished_steps_;
  bool begun_ = false;
  int fd_ = -1;
};

class JsonlSink : public MetricsSink {
 public:
  // Writes `folder`/metrics.jsonl, and `folder`/validation.jsonl with one object a validation pass, from the end of the
  // first step on.
  JsonlSink(const std::filesystem::path& folder, std::int64_t finished_steps);
  void on_step(std::int64_t step) override;
  void log(const StepMetrics& metrics) override;
  void log_validation(const ValidationMetrics& metrics) override;
  void roll_back(std::int64_t finished_steps) override;

 private:
  JsonlHistory steps_;
  JsonlHistory validations_;
};

// step -> loss of the validation passes up to `finished_steps` in `folder`/validation.jsonl; of a step with several
// rows the last. Passes whose loss was not finite are left out.
std::map<std::int64_t, double> read_validation_losses(const std::filesystem::path& folder, std::int64_t finished_steps);

// The rows of `folder`/metrics.jsonl in their order: step, loss (NaN for what is not a number there), tokens_seen and
// unix_time alone are filled. Lines that are not rows are left out.
std::vector<StepMetrics> read_steps(const std::filesystem::path& folder);

// The largest step in `folder`/metrics.jsonl or validation.jsonl; nothing without a row.
std::optional<std::int64_t> last_logged_step(const std::filesystem::path& folder);

}  // namespace titan::metrics
