// Reads metrics.jsonl, validation.jsonl and evaluation.jsonl as curves by step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/run_layout.h"

namespace titan::runs {

// Points of one column, in ascending order of steps.
struct Curve {
  std::vector<std::int64_t> steps;
  std::vector<double> values;  // NaN and infinities as the run wrote them

  bool empty() const { return steps.empty(); }
};

// Returns at most `max_points` points of the curve, evenly spread, including the first and the last.
Curve thinned(const Curve& curve, std::size_t max_points);

// Follows the metrics.jsonl, validation.jsonl or evaluation.jsonl of a run that may still be writing. A run that
// restarts from a checkpoint rewrites the file without the rows past the checkpoint.
class MetricsFile {
 public:
  explicit MetricsFile(std::filesystem::path path) : path_(std::move(path)) {}

  // Reads new rows. A missing file has no rows; a last line without its newline is left for later.
  // Skips lines that are not rows, which a crash may have cut.
  void refresh();

  // Returns the column, without the rows that lack it.
  Curve curve(const std::string& column) const;
  // Returns the names of numeric columns, in the order of first appearance, without "step".
  std::vector<std::string> columns() const;
  std::vector<std::int64_t> steps() const;
  std::int64_t last_step() const { return rows_.empty() ? 0 : rows_.rbegin()->first; }

 private:
  std::uint32_t number_of(const std::string& column);

  std::filesystem::path path_;
  std::uint64_t inode_ = 0;
  std::int64_t offset_ = 0;
  std::vector<std::string> names_;
  std::map<std::string, std::uint32_t> numbers_;                                // column name -> index in names_
  std::map<std::int64_t, std::vector<std::pair<std::uint32_t, double>>> rows_;  // the last row of each step
};

// The metrics files of a run's folder.
class RunMetrics {
 public:
  explicit RunMetrics(const std::filesystem::path& folder)
      : metrics_(folder / layout::kStepsFile),
        validation_(folder / layout::kValidationsFile),
        evaluation_(folder / layout::kEvaluationsFile) {}

  void refresh();
  // Reads "loss" from metrics.jsonl, "validation.loss" from validation.jsonl, "evaluation.arc/acc" from
  // evaluation.jsonl.
  Curve curve(const std::string& field) const;
  std::vector<std::string> fields() const;
  std::int64_t last_step() const { return metrics_.last_step(); }
  const MetricsFile& steps() const { return metrics_; }

 private:
  MetricsFile metrics_, validation_, evaluation_;
};

}  // namespace titan::runs
