#include "lab/runs/report/summary.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace titan::runs {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kEvaluation = "evaluation.";

void put(Json& out, const char* name, double value) {
  if (std::isfinite(value)) out[name] = value;
}

void put_last(Json& out, const char* name, const Curve& curve) {
  if (!curve.empty()) put(out, name, curve.values.back());
}

void put_median(Json& out, const char* name, Curve curve) {
  std::erase_if(curve.values, [](double value) { return !std::isfinite(value); });
  if (curve.values.empty()) return;
  const auto middle = curve.values.begin() + static_cast<std::ptrdiff_t>(curve.values.size() / 2);
  std::ranges::nth_element(curve.values, middle);
  put(out, name, *middle);
}

// Adds the lowest finite value, or with `is_more_better` the highest, and its step. Of equal ones the first counts.
void put_best(Json& out, const std::string& name, const std::string& step_name, const Curve& curve,
              bool is_more_better = false) {
  std::optional<std::size_t> best;
  const auto is_better = [&](double a, double b) { return is_more_better ? a > b : a < b; };
  for (std::size_t i = 0; i < curve.values.size(); ++i)
    if (std::isfinite(curve.values[i]) && (!best || is_better(curve.values[i], curve.values[*best]))) best = i;
  if (!best) return;
  out[name] = curve.values[*best];
  out[step_name] = curve.steps[*best];
}

// Returns the part after the last slash of "evaluation.arc_easy/acc"; "" for a field that is not a score.
std::string_view score_of(std::string_view field) {
  const auto slash = field.rfind('/');
  if (!field.starts_with(kEvaluation) || slash == std::string_view::npos) return "";
  const std::string_view score = field.substr(slash + 1);
  return score == "items" || score.ends_with("_stderr") ? "" : score;
}

Json scores_of(const RunMetrics& metrics) {
  Json out = Json::array();
  for (const std::string& field : metrics.fields()) {
    const std::string_view score = score_of(field);
    if (score.empty()) continue;
    Json& row = out.emplace_back(Json{{"name", field.substr(kEvaluation.size())}});
    const Curve curve = metrics.curve(field);
    put_last(row, "last", curve);
    put_best(row, "best", "best_step", curve, /*is_more_better=*/score.starts_with("acc"));
  }
  return out;
}

// Takes the state from the last event about the process itself; "" for a folder without events.
std::string state_of(const std::vector<Event>& events) {
  for (auto event = events.rbegin(); event != events.rend(); ++event) {
    if (event->name == "end") return "completed";
    if (event->name == "diverged" || event->name == "drifted") return event->name;
    if (event->name == "stop") return event->details.empty() ? "stopped" : "stopped (" + event->details + ")";
    if (event->name == "gave_up") return "failed (" + event->details + ")";
    if (event->name == "start" || event->name == "resume") return "running, or ended without reporting an error";
  }
  return "";
}

}  // namespace

Json summary_of(const RunMetrics& metrics, const std::vector<Event>& events,
                const std::optional<config::JobConfig>& config) {
  Json out = Json::object();
  if (const auto state = state_of(events); !state.empty()) out["state"] = state;
  out["steps"] = metrics.last_step();
  if (config) out["of_steps"] = config->training.steps;
  put_last(out, "loss", metrics.curve("loss"));
  put_best(out, "best_loss", "best_loss_step", metrics.curve("loss"));
  put_last(out, "validation_loss", metrics.curve("validation.loss"));
  put_best(out, "best_validation_loss", "best_validation_step", metrics.curve("validation.loss"));
  put_last(out, "tokens", metrics.curve("tokens_seen"));
  const Curve times = metrics.curve("unix_time");
  if (!times.empty()) put(out, "hours", (times.values.back() - times.values.front()) / 3600);
  put_median(out, "tokens_per_second", metrics.curve("tokens_per_second"));
  put_median(out, "step_seconds", metrics.curve("step_seconds"));
  const Curve memory = metrics.curve("memory_peak_bytes");
  if (!memory.empty()) put(out, "memory_peak_bytes", *std::ranges::max_element(memory.values));
  const auto count = [&](auto... names) {
    return std::ranges::count_if(events, [&](const Event& event) { return ((event.name == names) || ...); });
  };
  if (const auto starts = count("start", "resume"); starts > 0) out["starts"] = starts;
  if (!events.empty()) out["saves"] = count("save");
  put_last(out, "goodput_percent", metrics.curve("goodput_percent"));
  if (Json scores = scores_of(metrics); !scores.empty()) out["scores"] = std::move(scores);
  return out;
}

}  // namespace titan::runs
