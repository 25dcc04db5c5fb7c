// The metrics of a trial as it wrote them, and the objective they come to.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/run_layout.h"
#include "sweep/plan/spec.h"

namespace titan::sweep {

// Points of one column, by rising step.
struct Curve {
  std::vector<std::int64_t> steps;
  std::vector<double> values;  // NaN and infinities as the run wrote them
};

// Follows the metrics.jsonl or validation.jsonl of a run that may be writing it, or starting over from a checkpoint:
// that rewrites the file without the rows past the checkpoint.
class MetricsFile {
 public:
  explicit MetricsFile(std::filesystem::path path) : path_(std::move(path)) {}

  // Reads what is new. A file that is not there yet has no rows; a last line without its end is left for later, and
  // lines that are not rows are skipped: a crash may have cut them.
  void refresh();

  // The column, without rows that lack it.
  Curve curve(const std::string& column) const;
  std::int64_t last_step() const { return rows_.empty() ? 0 : rows_.rbegin()->first; }

 private:
  std::filesystem::path path_;
  std::uint64_t inode_ = 0;
  std::int64_t offset_ = 0;
  std::map<std::int64_t, std::map<std::string, double>> rows_;  // the last row of each step
};

// Both files of a trial's folder.
class TrialMetrics {
 public:
  explicit TrialMetrics(const std::filesystem::path& folder)
      : metrics_(folder / layout::kStepsFile), validation_(folder / layout::kValidationsFile) {}

  void refresh();
  // "loss" of metrics.jsonl, "validation.loss" of validation.jsonl.
  Curve curve(const std::string& field) const;
  std::int64_t last_step() const { return metrics_.last_step(); }

 private:
  MetricsFile metrics_, validation_;
};

// The objective of a curve, nothing for an empty one. With min and max, NaN does not count unless
// all are such; in a mean one of them makes the result none.
std::optional<double> reduce(const Curve& curve, const Objective& objective);

}  // namespace titan::sweep
