#include "lab/sweep/report/sweep_report.h"

#include <algorithm>

#include "base/fs.h"
#include "lab/page/page.h"
#include "lab/sweep/report/sweep_report_template.h"
#include "lab/sweep/results/json.h"
#include "lab/sweep/results/results.h"

namespace titan::sweep {
namespace {

constexpr std::size_t kMaxPoints = 240;

constexpr int kDigits = 6;  // more than a screen shows

OrderedJson table_cell(const config::FieldValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer;
  if (const auto* real = std::get_if<double>(&value)) return number_or_null(*real);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return to_toml_value(value);
}

std::vector<std::string> metrics_of(const Objective& objective) {
  std::vector<std::string> out = {objective.field};
  for (const char* name : {"loss", "validation.loss", "grad_norm", "lr", "tokens_per_second"})
    if (objective.field != name) out.emplace_back(name);
  return out;
}

OrderedJson curves_json(const TrialMetrics& metrics, const std::vector<std::string>& names, bool& any_thinned) {
  OrderedJson out = OrderedJson::object();
  for (const auto& name : names) {
    const Curve whole = metrics.curve(name);
    if (whole.steps.empty()) continue;
    any_thinned |= whole.steps.size() > kMaxPoints;
    const Curve curve = runs::thinned(whole, kMaxPoints);
    OrderedJson values = OrderedJson::array();
    for (const double value : curve.values) values.push_back(page::short_number(value, kDigits));
    out[name] = {curve.steps, values};
  }
  return out;
}

OrderedJson trial_json(const Record& record, std::size_t index, std::size_t rank) {
  const Trial& trial = record.trials[index];
  OrderedJson values = OrderedJson::object();
  for (const auto& [key, value] : trial.values) values[key] = table_cell(value);
  return {{"index", index},
          {"name", trial.name},
          {"rank", rank},
          {"state", state_text(record, trial)},
          {"hasObjective", !trial.rung_objectives.empty() && trial.state != State::kFailed},
          {"objective", number_or_null(trial.objective)},
          {"steps", trial.steps},
          {"starts", trial.starts},
          {"seconds", trial.seconds},
          {"error", trial.error},
          {"values", values}};
}

OrderedJson influences_json(const Record& record) {
  OrderedJson out = OrderedJson::array();
  for (const auto& i : influences(record))
    out.push_back({{"key", i.key},
                   {"explained", i.explained ? OrderedJson(*i.explained) : OrderedJson(nullptr)},
                   {"tiedTo", i.tied_to},
                   {"trend", i.trend ? OrderedJson(*i.trend) : OrderedJson(nullptr)}});
  return out;
}

}  // namespace

std::string report_page(const std::string& json) { return page::with_data(kReportTemplate, json); }

void write_report(const std::filesystem::path& folder, const Record& record, const std::string& generated) {
  const auto order = ranking(record);
  const auto metrics = metrics_of(record.objective);
  const auto shortened = short_keys(record.keys);
  bool any_thinned = false;
  OrderedJson trials = OrderedJson::array(), labels = OrderedJson::object(), present = OrderedJson::array();
  std::vector<std::string> seen;
  for (std::size_t i = 0; i < order.size(); ++i) {
    TrialMetrics files(folder / record.trials[order[i]].name);
    files.refresh();
    OrderedJson trial = trial_json(record, order[i], i + 1);
    trial["curves"] = curves_json(files, metrics, any_thinned);
    for (const auto& [name, curve] : trial["curves"].items()) seen.push_back(name);
    trials.push_back(std::move(trial));
  }
  for (const auto& name : metrics)
    if (std::ranges::count(seen, name) > 0 || name == record.objective.field) present.push_back(name);
  for (std::size_t i = 0; i < record.keys.size(); ++i) labels[record.keys[i]] = shortened[i];
  const Objective& o = record.objective;
  const OrderedJson data = {
      {"name", record.name},
      {"generated", generated},
      {"objective", {{"field", o.field}, {"reduction", o.reduction}, {"window", o.window}, {"maximize", o.maximize}}},
      {"keys", record.keys},
      {"shortKeys", labels},
      {"metrics", present},
      {"rungs", record.rungs},
      {"maxPoints", kMaxPoints},
      {"thinned", any_thinned},
      {"influences", influences_json(record)},
      {"trials", trials}};
  write_file_atomically(folder / "results.csv", to_csv(record));
  write_file_atomically(folder / "report.html",
                        report_page(data.dump(-1, ' ', false, OrderedJson::error_handler_t::replace)));
}

}  // namespace titan::sweep
