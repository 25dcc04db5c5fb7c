#include "lab/runs/report/runs_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "lab/page/page.h"
#include "lab/runs/events.h"
#include "lab/runs/report/runs_report_template.h"
#include "lab/runs/report/summary.h"

namespace titan::runs {
namespace {

using Json = nlohmann::ordered_json;

// Points per curve: more than a screen has columns, so that one can zoom in.
constexpr std::size_t kMaxPoints = 4000;

// Digits per value: more than a screen shows, and enough to tell float32 values apart.
constexpr int kDigits = 7;

// Keeps the digits of unix_time: seconds since 1970 need more than kDigits.
Json values_of(const std::string& field, const Curve& curve) {
  Json out = Json::array();
  for (const double value : curve.values)
    out.push_back(field == "unix_time" ? Json(std::round(value * 10) / 10) : page::short_number(value, kDigits));
  return out;
}

Json curves_of(const RunMetrics& metrics) {
  Json out = Json::object();
  for (const auto& field : metrics.fields()) {
    const Curve curve = thinned_with_peaks(metrics.curve(field), kMaxPoints);
    out[field] = {curve.steps, values_of(field, curve)};
  }
  return out;
}

Json events_json(const std::vector<Event>& events) {
  Json out = Json::array();
  for (const Event& event : events)
    out.push_back({{"step", event.step},
                   {"time", event.unix_time},
                   {"name", event.name},
                   {"details", event.details},
                   {"undone", event.is_undone}});
  return out;
}

Json rows_of(const std::vector<ConfigDifference>& differences) {
  Json out = Json::array();
  for (const auto& row : differences) out.push_back({{"key", row.key}, {"values", row.values}});
  return out;
}

// Compares the runs' configurations; a single run's to the defaults. null if one of them is unknown.
Json config_json(const std::vector<std::optional<config::JobConfig>>& read) {
  std::vector<config::JobConfig> configs;
  for (const auto& one : read)
    if (one) configs.push_back(*one);
  if (configs.size() != read.size()) return nullptr;
  if (configs.size() == 1) return {{"of", "defaults"}, {"rows", rows_of(changes_from_defaults(configs.front()))}};
  return {{"of", "runs"}, {"rows", rows_of(differences(configs))}};
}

}  // namespace

Curve thinned_with_peaks(const Curve& curve, std::size_t max_points) {
  const std::size_t size = curve.steps.size();
  if (size <= max_points) return curve;
  const std::size_t stretches = max_points / 2;
  Curve out;
  const auto keep = [&](std::size_t i) {
    out.steps.push_back(curve.steps[i]);
    out.values.push_back(curve.values[i]);
  };
  for (std::size_t n = 0; n < stretches; ++n) {
    const std::size_t begin = n * size / stretches, end = (n + 1) * size / stretches;
    std::optional<std::size_t> low, high;
    for (std::size_t i = begin; i < end; ++i) {
      if (!std::isfinite(curve.values[i])) continue;
      if (!low || curve.values[i] < curve.values[*low]) low = i;
      if (!high || curve.values[i] > curve.values[*high]) high = i;
    }
    for (std::size_t i = begin; i < end; ++i)
      if (i == low || i == high || i == 0 || i == size - 1 || !std::isfinite(curve.values[i])) keep(i);
  }
  return out;
}

std::string report_page(const std::vector<RunFolder>& runs, const std::string& generated) {
  Json of_runs = Json::array(), notes = Json::array();
  std::vector<std::optional<config::JobConfig>> configs;
  for (const RunFolder& run : runs) {
    RunMetrics metrics(run.path);
    metrics.refresh();
    std::string why;
    const auto& config = configs.emplace_back(read_run_config(run.path, why));
    if (!config) notes.push_back(run.name + ": its configuration cannot be read: " + why);
    const auto events = read_events(run.path);
    of_runs.push_back({{"name", run.name},
                       {"path", run.path.string()},
                       {"description", config ? config->job.description : ""},
                       {"summary", summary_of(metrics, events, config)},
                       {"events", events_json(events)},
                       {"curves", curves_of(metrics)}});
  }
  const Json data = {{"generated", generated}, {"runs", of_runs}, {"config", config_json(configs)}, {"notes", notes}};
  return page::with_data(kReportTemplate, data.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace titan::runs
