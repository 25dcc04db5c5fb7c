#include "metrics/jsonl_sink.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "base/fs.h"
#include "base/run_layout.h"
#include "metrics/event_log.h"
#include "metrics/history/append.h"
#include "metrics/history/json_lines.h"
#include "metrics/rows/evaluation_metrics.h"

namespace titan::metrics {
namespace {

using layout::kEvaluationsFile, layout::kStepsFile, layout::kValidationsFile;

// Writes the metrics of for_each_metric() as an object. Their names need no escapes, as those of tasks are checked.
// Written by hand, because a JSON tree would be built and discarded for every row.
class ObjectWriter {
 public:
  explicit ObjectWriter(std::string& row) : row_(row) { row_.clear(); }

  template <typename Number>
  void operator()(const Metric& metric, const Number& value) {
    write_key(metric);
    write(value);
  }
  template <typename Number>
  void operator()(const Metric& metric, const std::optional<Number>& value) {
    if (value) {
      (*this)(metric, *value);
    } else if (metric.is_null_when_unknown) {
      write_key(metric);
      row_.append("null");
    }
  }

 private:
  void write_key(const Metric& metric) { row_.append(row_.empty() ? "{\"" : ",\"").append(metric.name).append("\":"); }
  template <typename Number>
  void write(Number value) {
    append(row_, "{}", value);
  }
  void write(double value) {
    if (const auto name = name_of_not_finite(value); !name.empty()) {
      append(row_, "\"{}\"", name);
      return;
    }
    const std::size_t begin = row_.size();
    append(row_, "{}", value);
    // Writes a float as a float in every row, for readers that distinguish integers from floats.
    if (row_.find_first_of(".e", begin) == std::string::npos) row_.append(".0");
  }

  std::string& row_;
};

template <typename Metrics>
void write_row(const Metrics& metrics, std::string& row) {
  for_each_metric(metrics, ObjectWriter(row));
  row.push_back('}');
}

// Calls `use` for every row; skips lines that are not rows.
void for_each_row(const std::filesystem::path& path,
                  const std::function<void(std::int64_t step, const nlohmann::json& row)>& use) {
  if (!std::filesystem::exists(path)) return;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);)
    if (const auto row = parse_row(line)) use((*row)["step"].get<std::int64_t>(), *row);
}

std::optional<TimeSpent> time_spent_of(const nlohmann::json& row) {
  TimeSpent spent;
  for (const TimeUse& use : time_uses()) {
    const auto found = row.find(std::string(use.name));
    if (found == row.end() || !found->is_number()) return std::nullopt;
    spent[use.cause] = found->get<double>();
  }
  return spent;
}

}  // namespace

JsonlSink::JsonlSink(const std::filesystem::path& folder, std::int64_t finished_steps)
    : HistorySink(folder / kStepsFile, json_lines(), folder / kValidationsFile, json_lines("a row of a validation"),
                  finished_steps),
      evaluations_(folder / kEvaluationsFile, finished_steps, json_lines("a row of an evaluation")) {}

void JsonlSink::log(const StepMetrics& metrics) {
  write_row(metrics, row_);
  steps_.append(row_);
}

void JsonlSink::log_validation(const ValidationMetrics& metrics) {
  write_row(metrics, row_);
  validations_.append(row_);
}

void JsonlSink::log_evaluation(const EvaluationMetrics& metrics) {
  write_row(metrics, row_);
  evaluations_.append(row_);
}

void JsonlSink::on_step(std::int64_t step) {
  HistorySink::on_step(step);
  evaluations_.begin();
}

void JsonlSink::roll_back(std::int64_t finished_steps) {
  HistorySink::roll_back(finished_steps);
  evaluations_.roll_back(finished_steps);
}

void JsonlSink::check() {
  HistorySink::check();
  evaluations_.check();
}

std::int64_t last_evaluated_step(const std::filesystem::path& folder, std::int64_t finished_steps) {
  std::int64_t last = 0;
  for_each_row(folder / kEvaluationsFile, [&](std::int64_t step, const nlohmann::json&) {
    if (step <= finished_steps) last = std::max(last, step);
  });
  return last;
}

std::map<std::int64_t, double> read_validation_losses(const std::filesystem::path& folder,
                                                      std::int64_t finished_steps) {
  std::map<std::int64_t, double> losses;
  for_each_row(folder / kValidationsFile, [&](std::int64_t step, const nlohmann::json& row) {
    // A loss that is stored as a string was not a number.
    if (step <= finished_steps && row.contains("loss"))
      losses[step] = row["loss"].is_number() ? row["loss"].get<double>() : std::numeric_limits<double>::quiet_NaN();
  });
  return losses;
}

std::vector<StepMetrics> read_steps(const std::filesystem::path& folder) {
  std::vector<StepMetrics> rows;
  for_each_row(folder / kStepsFile, [&](std::int64_t step, const nlohmann::json& json) {
    const auto value = [&](const char* key, double otherwise) {
      return json.contains(key) && json[key].is_number() ? json[key].get<double>() : otherwise;
    };
    StepMetrics& row = rows.emplace_back();
    row.step = step;
    row.loss = value("loss", std::numeric_limits<double>::quiet_NaN());
    row.tokens_seen = static_cast<std::int64_t>(value("tokens_seen", 0));
    row.unix_time = value("unix_time", 0);
    row.time_spent = time_spent_of(json);
  });
  return rows;
}

TimeSpent read_earlier_time(const std::filesystem::path& folder, std::int64_t finished_steps, double start_unix_time) {
  // A run that its launcher has just restarted at step 0 has lost what it did before.
  const auto first_start = first_start_before_restart(folder / layout::kEventsFile);
  if (finished_steps == 0 && !first_start) return {};
  auto rows = read_steps(folder);
  if (finished_steps == 0) std::erase_if(rows, [&](const StepMetrics& row) { return row.unix_time < *first_start; });
  if (rows.empty() && finished_steps > 0) return {};
  EarlierRow kept{.unix_time = finished_steps == 0 ? *first_start : rows.front().unix_time};  // if no row is kept
  for (const StepMetrics& row : rows)
    if (row.step <= finished_steps) kept = {row.step, row.unix_time, row.time_spent.value_or(TimeSpent{})};
  // The time after a run had finished, until it was given more steps, does not count as down time.
  std::optional<double> end, failure;
  const EarlierRow last =
      rows.empty() ? kept : EarlierRow{.step = rows.back().step, .unix_time = rows.back().unix_time};
  for_each_row(folder / layout::kEventsFile, [&](std::int64_t step, const nlohmann::json& row) {
    end = std::nullopt;
    const double time = row.value("unix_time", 0.0);
    if (row.value("event", "") == "end" && step == finished_steps && time > 0) end = time;
    if (row.value("event", "") == "restart" && time > last.unix_time && !failure)
      failure = time - row.value("down_seconds", 0.0);
  });
  return earlier_time_spent(kept, last, finished_steps, std::min(start_unix_time, end.value_or(start_unix_time)),
                            rows.empty() ? std::nullopt : failure);
}

std::optional<std::int64_t> last_logged_step(const std::filesystem::path& folder) {
  std::optional<std::int64_t> last;
  for (const char* name : {kStepsFile, kValidationsFile, kEvaluationsFile})
    for_each_row(folder / name,
                 [&](std::int64_t step, const nlohmann::json&) { last = std::max(last, std::optional(step)); });
  return last;
}

}  // namespace titan::metrics
