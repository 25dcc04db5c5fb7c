#include "lab/sweep/results/results.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <set>

#include "base/text.h"
#include "lab/sweep/results/trial_metrics.h"

namespace titan::sweep {
namespace {

constexpr std::size_t kMaxGroups = 6;

// Returns ranks from 0; equal values share their mean rank, and NaN comes last.
std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](auto a, auto b) { return is_better(values[a], values[b], false); });
  const auto same = [&](std::size_t a, std::size_t b) {
    return values[a] == values[b] || (std::isnan(values[a]) && std::isnan(values[b]));
  };
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0, end; begin < order.size(); begin = end) {
    for (end = begin + 1; end < order.size() && same(order[begin], order[end]); ++end) {
    }
    for (std::size_t i = begin; i < end; ++i) ranks[order[i]] = static_cast<double>(begin + end - 1) / 2;
  }
  return ranks;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double squares(const std::vector<double>& values, double around) {
  double sum = 0;
  for (const double value : values) sum += (value - around) * (value - around);
  return sum;
}

std::optional<double> to_number(const config::FieldValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  return std::nullopt;
}

// A trial's value of one key and the rank of its objective.
struct Sample {
  std::size_t trial;
  std::string text;
  std::optional<double> number;
  double objective_rank;
};

std::vector<Sample> samples_of(const Record& record, const std::string& key) {
  std::vector<Sample> samples;
  std::vector<double> objectives;
  for (const Trial& trial : record.trials) {
    const auto it = std::ranges::find(trial.values, key, &Assignment::key);
    if (it == trial.values.end() || trial.rung_objectives.empty()) continue;
    samples.push_back(
        {static_cast<std::size_t>(&trial - record.trials.data()), to_toml_value(it->value), to_number(it->value), 0});
    const double objective = trial.rung_objectives.front();
    objectives.push_back(record.objective.maximize ? -objective : objective);
  }
  const auto ranks = ranks_of(objectives);
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i].objective_rank = ranks[i];
  return samples;
}

// The group of each trial, by the trial's index.
using Grouping = std::map<std::size_t, std::string>;

Grouping grouping_of(const std::vector<Sample>& samples) {
  Grouping groups;
  std::set<std::string> texts;
  for (const Sample& sample : samples) groups[sample.trial] = sample.text, texts.insert(sample.text);
  const bool numbers = std::ranges::all_of(samples, [](const Sample& s) { return s.number.has_value(); });
  if (!numbers || texts.size() <= kMaxGroups) return groups;
  std::vector<double> values;
  for (const Sample& sample : samples) values.push_back(*sample.number);
  const auto ranks = ranks_of(values);
  const std::size_t parts = std::clamp<std::size_t>(samples.size() / 4, 2, kMaxGroups);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto part =
        static_cast<std::size_t>(ranks[i] * static_cast<double>(parts) / static_cast<double>(samples.size()));
    groups[samples[i].trial] = std::to_string(part);
  }
  return groups;
}

// True if the group by one key determines the group by the other key, and the latter is not the same for all.
bool determines(const Grouping& one, const Grouping& other) {
  std::map<std::string, std::string> says;
  std::set<std::string> others;
  for (const auto& [trial, group] : one) {
    const auto found = other.find(trial);
    if (found == other.end()) return false;
    others.insert(found->second);
    if (says.emplace(group, found->second).first->second != found->second) return false;
  }
  return others.size() > 1;
}

std::optional<double> spearman(const std::vector<Sample>& samples) {
  std::vector<double> values, objectives;
  for (const Sample& sample : samples) {
    if (!sample.number) return std::nullopt;
    values.push_back(*sample.number);
    objectives.push_back(sample.objective_rank);
  }
  const auto x = ranks_of(values), y = ranks_of(objectives);
  const double mx = mean(x), my = mean(y);
  double product = 0;
  for (std::size_t i = 0; i < x.size(); ++i) product += (x[i] - mx) * (y[i] - my);
  const double scale = std::sqrt(squares(x, mx) * squares(y, my));
  return scale > 0 ? std::optional(product / scale) : std::nullopt;
}

Influence influence_of(const Record& record, const std::string& key) {
  Influence out;
  out.key = key;
  const auto samples = samples_of(record, key);
  if (samples.size() < 3) return out;
  const Grouping grouping = grouping_of(samples);
  std::map<std::string, std::vector<double>> groups;
  for (const Sample& sample : samples) groups[grouping.at(sample.trial)].push_back(sample.objective_rank);
  out.num_values = groups.size();
  for (const auto& other : record.keys) {
    if (other == key) continue;
    const Grouping others = grouping_of(samples_of(record, other));
    if (determines(grouping, others) || determines(others, grouping)) out.tied_to.push_back(other);
  }
  out.trend = spearman(samples);
  // Better objectives have low ranks; the trend is of the objective itself.
  if (out.trend && record.objective.maximize) out.trend = -*out.trend;
  std::vector<double> all;
  for (const Sample& sample : samples) all.push_back(sample.objective_rank);
  const double total = squares(all, mean(all));
  if (groups.size() < 2 || groups.size() >= samples.size() || total == 0 || !out.tied_to.empty()) return out;
  double within = 0;
  for (const auto& [value, ranks] : groups) within += squares(ranks, mean(ranks));
  const auto n = static_cast<double>(samples.size()), k = static_cast<double>(groups.size());
  out.explained = std::max(0.0, 1 - within / total * (n - 1) / (n - k));
  return out;
}

std::string padded(const std::string& text, std::size_t width, bool right) {
  // Widths count bytes; numbers, keys and names are ASCII except for unusual values.
  if (text.size() >= width) return text;
  const std::string space(width - text.size(), ' ');
  return right ? space + text : text + space;
}

}  // namespace

std::vector<std::size_t> ranking(const Record& record) {
  std::vector<std::size_t> order(record.trials.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    const Trial &x = record.trials[a], &y = record.trials[b];
    const bool x_failed = x.state == State::kFailed, y_failed = y.state == State::kFailed;
    if (x_failed != y_failed) return y_failed;
    if (x.rung_objectives.size() != y.rung_objectives.size())
      return x.rung_objectives.size() > y.rung_objectives.size();
    return is_better(x.objective, y.objective, record.objective.maximize);
  });
  return order;
}

void judge_again(Record& record, const std::filesystem::path& folder, const Objective& objective) {
  record.objective = objective;
  for (Trial& trial : record.trials) {
    TrialMetrics metrics(folder / trial.name);
    metrics.refresh();
    const Curve curve = metrics.curve(objective.field);
    const auto value_at = [&](std::int64_t step) {
      const auto rows = std::ranges::upper_bound(curve.steps, step) - curve.steps.begin();
      const Curve part{{curve.steps.begin(), curve.steps.begin() + rows},
                       {curve.values.begin(), curve.values.begin() + rows}};
      return reduce(part, objective).value_or(std::nan(""));
    };
    for (std::size_t rung = 0; rung < trial.rung_objectives.size(); ++rung)
      trial.rung_objectives[rung] = value_at(record.rungs.empty() ? trial.steps : record.rungs.at(rung));
    if (trial.rung_objectives.empty()) continue;
    trial.objective = trial.rung_objectives.back();
    trial.objective_step = curve.empty() ? 0 : curve.steps.back();
  }
}

std::vector<Influence> influences(const Record& record) {
  std::vector<Influence> out;
  for (const auto& key : record.keys) out.push_back(influence_of(record, key));
  return out;
}

std::string objective_text(double value) {
  if (std::isnan(value)) return "nan";
  char text[32];
  std::snprintf(text, sizeof(text), "%.5g", value);
  return text;
}

std::string state_text(const Record& record, const Trial& trial) {
  const bool over = std::ranges::none_of(
      record.trials, [](const Trial& t) { return t.state == State::kPending || t.state == State::kRunning; });
  return trial.state == State::kPaused && over ? "stopped early" : to_string(trial.state);
}

std::string ranking_table(const Record& record, std::size_t max_rows) {
  std::vector<std::vector<std::string>> rows = {{"rank", "trial", record.objective.field, "steps", "state", "time"}};
  for (const auto& key : short_keys(record.keys)) rows[0].push_back(key);
  const auto order = ranking(record);
  for (std::size_t i = 0; i < std::min(order.size(), max_rows); ++i) {
    const Trial& trial = record.trials[order[i]];
    const bool has_objective = !trial.rung_objectives.empty();
    std::vector<std::string> row = {
        std::to_string(i + 1),       std::to_string(order[i]),  has_objective ? objective_text(trial.objective) : "-",
        std::to_string(trial.steps), state_text(record, trial), format_duration(trial.seconds)};
    for (const auto& key : record.keys) {
      const auto it = std::ranges::find(trial.values, key, &Assignment::key);
      row.push_back(it == trial.values.end() ? "" : short_text(it->value));
    }
    rows.push_back(std::move(row));
  }
  std::vector<std::size_t> widths(rows[0].size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += (i ? "  " : "") + padded(row[i], widths[i], i != 4);
    out += line + "\n";
  }
  const auto is_result = [&](std::size_t trial) {
    return !record.trials[trial].rung_objectives.empty() || record.trials[trial].state == State::kFailed;
  };
  const auto left_out = std::count_if(order.begin() + static_cast<std::ptrdiff_t>(std::min(order.size(), max_rows)),
                                      order.end(), is_result);
  if (left_out > 0) out += "and " + std::to_string(left_out) + " more\n";
  return out;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

std::string to_csv(const Record& record) {
  std::vector<std::string> header = {"rank",           "trial", "name",   "state",   record.objective.field,
                                     "objective_step", "steps", "starts", "seconds", "error"};
  header.insert(header.end(), record.keys.begin(), record.keys.end());
  std::vector<std::vector<std::string>> rows = {header};
  const auto order = ranking(record);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Trial& trial = record.trials[order[i]];
    // Enough digits to read the same number back.
    const auto number = [](double value) { return std::isnan(value) ? "nan" : config::to_toml_value(value); };
    char seconds[32];
    std::snprintf(seconds, sizeof(seconds), "%.1f", trial.seconds);
    std::vector<std::string> row = {std::to_string(i + 1),
                                    std::to_string(order[i]),
                                    trial.name,
                                    state_text(record, trial),
                                    trial.rung_objectives.empty() ? "" : number(trial.objective),
                                    trial.objective_step == 0 ? "" : std::to_string(trial.objective_step),
                                    std::to_string(trial.steps),
                                    std::to_string(trial.starts),
                                    seconds,
                                    trial.error};
    for (const auto& key : record.keys) {
      const auto it = std::ranges::find(trial.values, key, &Assignment::key);
      const auto* text = it == trial.values.end() ? nullptr : std::get_if<std::string>(&it->value);
      row.push_back(it == trial.values.end() ? "" : text ? *text : to_toml_value(it->value));
    }
    rows.push_back(std::move(row));
  }
  std::string out;
  for (auto& row : rows) {
    for (auto& field : row) field = csv_field(field);
    out += join(row, ",") + "\r\n";
  }
  return out;
}

}  // namespace titan::sweep
