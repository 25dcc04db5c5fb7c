#include "sweep/results/curves.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

namespace titan::sweep {
namespace {

using Json = nlohmann::json;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::string_view kValidation = "validation.";

// JSON has no word for these; metrics.jsonl writes them as strings.
std::optional<double> number(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "NaN") return kNaN;
  if (value == "Infinity") return kInfinity;
  if (value == "-Infinity") return -kInfinity;
  return std::nullopt;
}

}  // namespace

void MetricsFile::refresh() {
  struct stat status {};
  if (::stat(path_.c_str(), &status) != 0) {
    rows_.clear();
    inode_ = 0, offset_ = 0;
    return;
  }
  if (status.st_ino != inode_ || status.st_size < offset_) {
    rows_.clear();
    inode_ = status.st_ino;
    offset_ = 0;
  }
  if (status.st_size == offset_) return;
  std::ifstream in(path_, std::ios::binary);
  in.seekg(offset_);
  for (std::string line; std::getline(in, line);) {
    if (in.eof()) break;  // no newline yet
    offset_ += static_cast<std::int64_t>(line.size()) + 1;
    const Json row = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!row.is_object() || !row.contains("step") || !row["step"].is_number_integer()) continue;
    auto& kept = rows_[row["step"].get<std::int64_t>()];
    kept.clear();
    for (const auto& [column, value] : row.items())
      if (const auto parsed = number(value)) kept[column] = *parsed;
  }
}

Curve MetricsFile::curve(const std::string& column) const {
  Curve out;
  for (const auto& [step, row] : rows_) {
    const auto it = row.find(column);
    if (it == row.end()) continue;
    out.steps.push_back(step);
    out.values.push_back(it->second);
  }
  return out;
}

void TrialMetrics::refresh() {
  metrics_.refresh();
  validation_.refresh();
}

Curve TrialMetrics::curve(const std::string& field) const {
  if (field.starts_with(kValidation)) return validation_.curve(field.substr(kValidation.size()));
  return metrics_.curve(field);
}

std::optional<double> reduce(const Curve& curve, const Objective& objective) {
  if (curve.values.empty()) return std::nullopt;
  if (objective.reduction == "last") return curve.values.back();
  if (objective.reduction == "mean") {
    const auto count = std::min(curve.values.size(), static_cast<std::size_t>(objective.window));
    return std::accumulate(curve.values.end() - static_cast<std::ptrdiff_t>(count), curve.values.end(), 0.0) /
           static_cast<double>(count);
  }
  double best = kNaN;
  for (const double value : curve.values)
    if (!std::isnan(value) && (std::isnan(best) || (objective.reduction == "max" ? value > best : value < best)))
      best = value;
  return best;
}

}  // namespace titan::sweep
