// Where two runs part: the first step at which a number differs, and by how much they differ at most.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/runs/compare/compare_checksums.h"
#include "lab/runs/find_runs.h"

namespace titan::runs {

struct CompareOptions {
  double tolerance = 0;              // largest relative difference that is not one; 0: every bit counts
  std::vector<std::string> metrics;  // fields of RunMetrics::curve(); empty: default_metrics() that the runs have
};

// What the arithmetic of a run decides, whatever the machine and the number of ranks. Times, throughput and memory are
// not among them, nor is max_loss, which depends on the number of ranks.
std::vector<std::string> default_metrics();

struct MetricComparison {
  std::string name;
  std::int64_t common_steps = 0;              // steps where both runs have it; 0: only one has the metric
  std::optional<std::int64_t> parts_at = {};  // the first step beyond the tolerance
  double a = 0, b = 0;                        // the values there
  double relative = 0;          // |a - b| / max(|a|, |b|); infinite where one is NaN or infinite and one not
  double largest = 0;           // of all steps
  std::int64_t largest_at = 0;  // its first step; 0 where all are equal
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
  std::vector<ConfigDifference> config = {};  // of two values each
  std::string config_fault = {};              // why the configurations cannot be compared; "" where they were

  std::optional<std::int64_t> parts_at() const;  // the first step of all metrics and, without tolerance, checksums
  bool agrees() const { return !parts_at(); }
};

// 0 for equal numbers, NaN and NaN included.
double relative_difference(double a, double b);

// Throws DataError when the runs have no step in common, ConfigError for a metric that neither has.
Comparison compare(const RunFolder& a, const RunFolder& b, const CompareOptions& options);

}  // namespace titan::runs
