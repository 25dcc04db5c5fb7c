// metrics.jsonl and validation.jsonl: one JSON object a line. Numbers read back exactly. JSON has no NaN and no
// infinity, and null would hide which it was, so these are the strings "NaN", "Infinity" and "-Infinity". "mfu" is null
// when the device's peak is not known.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>

#include "metrics/step_metrics.h"

namespace titan::metrics {

// A history of steps that goes on after a resume: rows of an earlier run past the step it resumed from are dropped
// (their steps are about to run again), so every step has one row. One process writes a file at a time.
class JsonlHistory {
 public:
  // `finished_steps`: the step that training resumes after, 0 for a fresh start. What is dropped is said in the log,
  // also a line that is no JSON object with a "step", such as the torn last line of a crash. The file is replaced in
  // one step. The folder is made where it is missing. Throws std::system_error naming the path.
  JsonlHistory(std::filesystem::path path, std::int64_t finished_steps);
  ~JsonlHistory();
  JsonlHistory(const JsonlHistory&) = delete;
  JsonlHistory& operator=(const JsonlHistory&) = delete;

  // The line is with the operating system when this returns: it survives the end of the process, not of the machine.
  void append(const nlohmann::ordered_json& row);

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

class JsonlSink : public MetricsSink {
 public:
  // Writes `folder`/metrics.jsonl, and `folder`/validation.jsonl with one object a validation pass.
  JsonlSink(const std::filesystem::path& folder, std::int64_t finished_steps);
  void log(const StepMetrics& metrics) override;
  void log_validation(const ValidationMetrics& metrics) override;

 private:
  JsonlHistory steps_;
  JsonlHistory validations_;
};

// step -> loss of the validation passes in `folder`/validation.jsonl; of a step with several rows the last. Passes
// whose loss was not finite are left out.
std::map<std::int64_t, double> read_validation_losses(const std::filesystem::path& folder);

}  // namespace titan::metrics
