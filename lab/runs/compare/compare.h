// Compares two runs: the first step at which a value differs, and the largest difference.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/runs/compare/compare_checksums.h"
#include "lab/runs/find_runs.h"

namespace titan::runs {

struct CompareOptions {
  double tolerance = 0;              // largest relative difference that counts as equal; 0: bitwise
  std::vector<std::string> metrics;  // fields of RunMetrics::curve(); empty: those default_metrics() that the runs have
};

// Returns the metrics that depend only on the arithmetic of a run, not on the machine or the number
// of ranks: no times, throughput or memory, and no max_loss, which depends on the number of ranks.
std::vector<std::string> default_metrics();

struct MetricComparison {
  std::string name;
  std::int64_t common_steps = 0;              // steps at which both runs have it; 0: only one has the metric
  std::optional<std::int64_t> parts_at = {};  // first step beyond the tolerance
  double a = 0, b = 0;                        // values at that step
  double relative = 0;                        // |a - b| / max(|a|, |b|); infinity if exactly one is NaN or infinite
  double largest = 0;                         // over all steps
  std::int64_t largest_at = 0;                // its first step; 0 if all are equal
};

struct RunSteps {
  std::int64_t rows = 0;
  std::int64_t first = 0, last = 0;
  std::vector<std::int64_t> alone;  // steps that the other run does not have
};

struct Comparison {
  RunFolder a, b;
  double tolerance = 0;
  RunSteps steps_a = {}, steps_b = {};
  std::int64_t common_steps = 0;
  std::vector<MetricComparison> metrics = {};
  ChecksumComparison checksums = {};
  std::vector<ConfigDifference> config = {};  // two values each
  std::string config_fault = {};              // why the configurations cannot be compared; "" if they were

  std::optional<std::int64_t> parts_at() const;  // first step over all metrics and, without tolerance, checksums
  bool agrees() const { return !parts_at(); }
};

// Returns 0 for equal numbers, including NaN and NaN.
double relative_difference(double a, double b);

// Throws DataError if the runs have no step in common, ConfigError for a metric that neither has.
Comparison compare(const RunFolder& a, const RunFolder& b, const CompareOptions& options);

}  // namespace titan::runs
