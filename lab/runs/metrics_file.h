// metrics.jsonl and validation.jsonl as they are read again: curves by step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/run_layout.h"

namespace titan::runs {

// Points of one column, by rising step.
struct Curve {
  std::vector<std::int64_t> steps;
  std::vector<double> values;  // NaN and infinities as the run wrote them

  bool empty() const { return steps.empty(); }
};

// At most `max_points` of the curve, evenly spread, the first and the last among them.
Curve thinned(const Curve& curve, std::size_t max_points);

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
  // Names of the columns that hold numbers, in the order in which they first came, without "step".
  std::vector<std::string> columns() const;
  std::vector<std::int64_t> steps() const;
  std::int64_t last_step() const { return rows_.empty() ? 0 : rows_.rbegin()->first; }

 private:
  std::uint32_t number_of(const std::string& column);

  std::filesystem::path path_;
  std::uint64_t inode_ = 0;
  std::int64_t offset_ = 0;
  std::vector<std::string> names_;
  std::map<std::string, std::uint32_t> numbers_;                                // of the names
  std::map<std::int64_t, std::vector<std::pair<std::uint32_t, double>>> rows_;  // the last row of each step
};

// Both files of a run's folder.
class RunMetrics {
 public:
  explicit RunMetrics(const std::filesystem::path& folder)
      : metrics_(folder / layout::kStepsFile), validation_(folder / layout::kValidationsFile) {}

  void refresh();
  // "loss" of metrics.jsonl, "validation.loss" of validation.jsonl.
  Curve curve(const std::string& field) const;
  std::vector<std::string> fields() const;
  std::int64_t last_step() const { return metrics_.last_step(); }
  const MetricsFile& steps() const { return metrics_; }

 private:
  MetricsFile metrics_, validation_;
};

}  // namespace titan::runs
