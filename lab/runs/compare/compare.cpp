#include "lab/runs/compare/compare.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "lab/runs/metrics_file.h"

namespace titan::runs {
namespace {

RunSteps steps_of(const std::vector<std::int64_t>& own, const std::vector<std::int64_t>& other) {
  RunSteps out;
  out.rows = std::ssize(own);
  if (!own.empty()) out.first = own.front(), out.last = own.back();
  std::ranges::set_difference(own, other, std::back_inserter(out.alone));
  return out;
}

std::string range_text(const RunSteps& steps) {
  return steps.rows == 0 ? "no row"
                         : counted(steps.rows, "row") + " of steps " + std::to_string(steps.first) + " to " +
                               std::to_string(steps.last);
}

MetricComparison compare_curves(const std::string& name, const Curve& a, const Curve& b, double tolerance) {
  MetricComparison out{.name = name};
  for (std::size_t i = 0, j = 0; i < a.steps.size() && j < b.steps.size();) {
    if (a.steps[i] != b.steps[j]) {
      ++(a.steps[i] < b.steps[j] ? i : j);
      continue;
    }
    const double difference = relative_difference(a.values[i], b.values[j]);
    ++out.common_steps;
    if (difference > out.largest) {
      out.largest = difference;
      out.largest_at = a.steps[i];
    }
    if (difference > tolerance && !out.parts_at) {
      out.parts_at = a.steps[i];
      out.a = a.values[i], out.b = b.values[j];
      out.relative = difference;
    }
    ++i, ++j;
  }
  return out;
}

void compare_metrics(const RunMetrics& a, const RunMetrics& b, const CompareOptions& options, Comparison& out) {
  const bool is_asked = !options.metrics.empty();
  for (const auto& name : is_asked ? options.metrics : default_metrics()) {
    const Curve curve_a = a.curve(name), curve_b = b.curve(name);
    if (curve_a.empty() && curve_b.empty()) {
      if (!is_asked) continue;
      auto known = a.fields();
      for (const auto& field : b.fields())
        if (std::ranges::count(known, field) == 0) known.push_back(field);
      throw ConfigError("error: --metric " + name + ": neither run has it; they have " + join(known, ", "));
    }
    out.metrics.push_back(compare_curves(name, curve_a, curve_b, options.tolerance));
  }
}

void compare_configs(Comparison& out) {
  const auto a = read_run_config(out.a.path, out.config_fault);
  const auto b = read_run_config(out.b.path, out.config_fault);
  if (!a || !b) return;
  const config::JobConfig both[] = {*a, *b};
  out.config = differences(both);
}

}  // namespace

std::vector<std::string> default_metrics() {
  return {"loss", "grad_norm", "lr", "tokens_seen", "grad_scale", "validation.loss"};
}

double relative_difference(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
  return std::abs(a - b) / std::max(std::abs(a), std::abs(b));
}

std::optional<std::int64_t> Comparison::parts_at() const {
  std::optional<std::int64_t> first;
  const auto take = [&](std::int64_t step) { first = first ? std::min(*first, step) : step; };
  for (const auto& metric : metrics)
    if (metric.parts_at) take(*metric.parts_at);
  if (tolerance == 0 && checksums.parting) take(checksums.parting->step);
  return first;
}

Comparison compare(const RunFolder& a, const RunFolder& b, const CompareOptions& options) {
  Comparison out{.a = a, .b = b, .tolerance = options.tolerance};
  RunMetrics metrics_a(a.path), metrics_b(b.path);
  metrics_a.refresh();
  metrics_b.refresh();
  const auto of_a = metrics_a.steps().steps(), of_b = metrics_b.steps().steps();
  out.steps_a = steps_of(of_a, of_b);
  out.steps_b = steps_of(of_b, of_a);
  out.common_steps = out.steps_a.rows - std::ssize(out.steps_a.alone);
  if (out.common_steps == 0)
    throw DataError("error: the runs have no step in common: " + a.path.string() + " has " + range_text(out.steps_a) +
                    ", " + b.path.string() + " has " + range_text(out.steps_b) +
                    "; runs that are to be compared need the same metrics.log_freq");
  compare_metrics(metrics_a, metrics_b, options, out);
  out.checksums = compare_checksums(a.path, b.path);
  compare_configs(out);
  return out;
}

}  // namespace titan::runs
