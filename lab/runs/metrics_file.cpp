#include "lab/runs/metrics_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/limits/parse_json.h"

namespace titan::runs {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::string_view kValidation = "validation.", kEvaluation = "evaluation.";

// JSON has no NaN or infinity, so a run writes them as strings.
std::optional<double> parsed_number(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (value == "Infinity") return kInfinity;
  if (value == "-Infinity") return -kInfinity;
  return std::nullopt;
}

}  // namespace

Curve thinned(const Curve& curve, std::size_t max_points) {
  const std::size_t size = curve.steps.size();
  if (size <= max_points) return curve;
  Curve out;
  for (std::size_t i = 0; i < max_points; ++i) {
    const std::size_t at = i * (size - 1) / (max_points - 1);
    out.steps.push_back(curve.steps[at]);
    out.values.push_back(curve.values[at]);
  }
  return out;
}

std::uint32_t MetricsFile::number_of(const std::string& column) {
  const auto [found, is_new] = numbers_.emplace(column, static_cast<std::uint32_t>(names_.size()));
  if (is_new) names_.push_back(column);
  return found->second;
}

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
    const Json row = try_parse_json<Json>(line);
    const auto step = find_integer(row, "step");
    if (!step) continue;
    auto& kept = rows_[*step];
    kept.clear();
    for (const auto& [column, value] : row.items()) {
      if (column == "step") continue;
      if (const auto parsed = parsed_number(value)) kept.emplace_back(number_of(column), *parsed);
    }
  }
}

Curve MetricsFile::curve(const std::string& column) const {
  Curve out;
  const auto known = numbers_.find(column);
  if (known == numbers_.end()) return out;
  for (const auto& [step, row] : rows_) {
    const auto cell = std::ranges::find(row, known->second, &std::pair<std::uint32_t, double>::first);
    if (cell == row.end()) continue;
    out.steps.push_back(step);
    out.values.push_back(cell->second);
  }
  return out;
}

std::vector<std::string> MetricsFile::columns() const {
  std::vector<std::string> out;
  for (const auto& name : names_)
    if (!curve(name).empty()) out.push_back(name);
  return out;
}

std::vector<std::int64_t> MetricsFile::steps() const {
  std::vector<std::int64_t> out;
  for (const auto& [step, row] : rows_) out.push_back(step);
  return out;
}

void RunMetrics::refresh() {
  metrics_.refresh();
  validation_.refresh();
  evaluation_.refresh();
}

Curve RunMetrics::curve(const std::string& field) const {
  if (field.starts_with(kValidation)) return validation_.curve(field.substr(kValidation.size()));
  if (field.starts_with(kEvaluation)) return evaluation_.curve(field.substr(kEvaluation.size()));
  return metrics_.curve(field);
}

std::vector<std::string> RunMetrics::fields() const {
  auto out = metrics_.columns();
  for (const auto& name : validation_.columns()) out.push_back(std::string(kValidation) + name);
  for (const auto& name : evaluation_.columns()) out.push_back(std::string(kEvaluation) + name);
  return out;
}

}  // namespace titan::runs
