#include "lab/runs/compare/print_comparison.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/text.h"
#include "base/text_table.h"

namespace titan::runs {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

std::string rounded(double value) { return fmt::format("{:.3g}", value); }

// Returns "3, 5, 7, 9, ... 40 (12 steps)": a log that misses rows must not print hundreds of numbers.
std::string steps_text(const std::vector<std::int64_t>& steps) {
  constexpr std::size_t kShown = 4;
  std::vector<std::string> words;
  for (std::size_t i = 0; i < steps.size() && i < kShown; ++i) words.push_back(std::to_string(steps[i]));
  std::string out = join(words, ", ");
  if (steps.size() > kShown)
    out += fmt::format(", ... {} ({})", steps.back(), counted(static_cast<std::int64_t>(steps.size()), "step"));
  return out;
}

// Returns the path relative to the current folder if it is inside, else the full path.
std::string typed_path(const std::filesystem::path& path) {
  std::error_code error;
  const auto from_here = std::filesystem::proximate(path, error);
  return error || from_here.empty() || *from_here.begin() == ".." ? path.string() : from_here.string();
}

std::string side_text(const char* letter, const RunFolder& run, const RunSteps& steps) {
  std::string out = fmt::format("{}  {}  steps {} to {}, {}", letter, typed_path(run.path), steps.first, steps.last,
                                counted(steps.rows, "row"));
  if (!steps.alone.empty()) out += "; without the other: " + steps_text(steps.alone);
  return out + "\n";
}

using Row = std::vector<std::string>;

std::string metrics_table(const Comparison& comparison) {
  const bool is_exact = comparison.tolerance == 0;
  const bool is_parted = std::ranges::any_of(comparison.metrics, [](const auto& m) { return m.parts_at.has_value(); });
  std::vector<Row> rows = {{"metric", "", "largest relative"}};
  if (is_parted) rows = {{"metric", is_exact ? "parts at" : "beyond at", "a", "b", "relative", "largest relative"}};
  for (const auto& m : comparison.metrics) {
    Row row = {m.name};
    if (m.common_steps == 0) {
      row.push_back("only one run has it");
    } else if (m.parts_at) {
      row.insert(row.end(), {fmt::format("step {}", *m.parts_at), fmt::format("{}", m.a), fmt::format("{}", m.b),
                             rounded(m.relative)});
    } else {
      row.emplace_back(m.largest == 0 ? "equal" : "never");
      if (is_parted) row.insert(row.end(), 3, "");
    }
    if (m.largest > 0) row.push_back(fmt::format("{} at step {}", rounded(m.largest), m.largest_at));
    rows.push_back(std::move(row));
  }
  return text_table(rows, std::vector<bool>(rows.front().size()));
}

std::string parting_text(const ChecksumParting& p) {
  std::string out = fmt::format("checksums: the runs part at step {}, first in the {} of {}; {} of {} differ there",
                                p.step, p.kind, p.parameter, p.gradients_differ, counted(p.gradients, "gradient"));
  out += fmt::format(", {} of {}", p.weights_differ, counted(p.weights, "weight"));
  if (p.step == 0) {
    out += "\n  These are the weights that training began with: other initial values (debug.seed, the model's sizes)";
  } else if (p.gradients > 0 && p.gradients_differ == 0) {
    out +=
        "\n  All gradients of the step are equal, so the update differs: the optimizer, its state or its learning rate";
  }
  return out + "\n";
}

std::string checksums_text(const Comparison& comparison) {
  const auto& sums = comparison.checksums;
  if (!sums.is_in_a && !sums.is_in_b)
    return "checksums: none were recorded; debug.checksum_freq makes runs record them, which names the parameter\n";
  if (!sums.is_in_a || !sums.is_in_b)
    return fmt::format("checksums: only {} recorded them\n", sums.is_in_a ? "a" : "b");
  if (sums.common_steps == 0) return "checksums: the runs recorded none of the same step\n";
  if (!sums.parting) return fmt::format("checksums: equal at all of {}\n", counted(sums.common_steps, "common step"));
  std::string out = parting_text(*sums.parting);
  if (sums.last_equal)
    out += fmt::format("  The last step before it with checksums of both, {}, is equal\n", *sums.last_equal);
  if (comparison.tolerance > 0) out += "  They compare bits and do not count with --tolerance\n";
  return out;
}

std::string config_text(const Comparison& comparison) {
  if (!comparison.config_fault.empty())
    return "configurations: not compared, for one cannot be read: " + comparison.config_fault + "\n";
  if (comparison.config.empty()) return "configurations: equal\n";
  std::vector<Row> rows = {{"key", "a", "b"}};
  for (const auto& row : comparison.config) rows.push_back({row.key, row.values[0], row.values[1]});
  return "configurations: they differ\n" + text_table(rows, {false, false, false});
}

std::string verdict(const Comparison& comparison) {
  const std::string common = counted(comparison.common_steps, "common step");
  if (const auto step = comparison.parts_at())
    return comparison.tolerance == 0
               ? fmt::format("The runs part at step {}.", *step)
               : fmt::format("The runs differ by more than {} from step {} on.", comparison.tolerance, *step);
  if (comparison.tolerance == 0) return fmt::format("The runs agree bit for bit in {}.", common);
  const MetricComparison* worst = nullptr;
  for (const auto& metric : comparison.metrics)
    if (metric.largest > 0 && (!worst || metric.largest > worst->largest)) worst = &metric;
  if (!worst) return fmt::format("The runs agree in {}, bit for bit.", common);
  return fmt::format("The runs agree within {} in {}; the largest relative difference is {}, of {} at step {}.",
                     comparison.tolerance, common, rounded(worst->largest), worst->name, worst->largest_at);
}

Json side_json(const RunFolder& run, const RunSteps& steps) {
  return {{"path", run.path.string()},
          {"rows", steps.rows},
          {"first_step", steps.first},
          {"last_step", steps.last},
          {"steps_alone", steps.alone}};
}

Json step_or_null(const std::optional<std::int64_t>& step) { return step ? Json(*step) : Json(nullptr); }

Json metric_json(const MetricComparison& m) {
  Json out = {{"common_steps", m.common_steps}, {"parts_at", step_or_null(m.parts_at)}};
  if (m.parts_at) {
    out["a"] = number(m.a);
    out["b"] = number(m.b);
    out["relative"] = number(m.relative);
  }
  out["largest_relative"] = number(m.largest);
  out["largest_at"] = m.largest > 0 ? Json(m.largest_at) : Json(nullptr);
  return out;
}

Json checksums_json(const ChecksumComparison& sums) {
  Json out = {{"in_a", sums.is_in_a},
              {"in_b", sums.is_in_b},
              {"common_steps", sums.common_steps},
              {"last_equal", step_or_null(sums.last_equal)},
              {"parting", nullptr}};
  if (const auto& p = sums.parting)
    out["parting"] = {{"step", p->step},           {"kind", p->kind},
                      {"parameter", p->parameter}, {"gradients_differ", p->gradients_differ},
                      {"gradients", p->gradients}, {"weights_differ", p->weights_differ},
                      {"weights", p->weights}};
  return out;
}

}  // namespace

std::string comparison_text(const Comparison& comparison) {
  return side_text("a", comparison.a, comparison.steps_a) + side_text("b", comparison.b, comparison.steps_b) + "\n" +
         verdict(comparison) + "\n\n" + metrics_table(comparison) + "\n" + checksums_text(comparison) +
         config_text(comparison);
}

std::string comparison_json(const Comparison& comparison) {
  Json metrics = Json::object(), config = Json::array();
  for (const auto& metric : comparison.metrics) metrics[metric.name] = metric_json(metric);
  for (const auto& row : comparison.config)
    config.push_back({{"key", row.key}, {"a", row.values[0]}, {"b", row.values[1]}});
  Json out = {{"agree", comparison.agrees()},
              {"parts_at", step_or_null(comparison.parts_at())},
              {"tolerance", comparison.tolerance},
              {"common_steps", comparison.common_steps},
              {"a", side_json(comparison.a, comparison.steps_a)},
              {"b", side_json(comparison.b, comparison.steps_b)},
              {"metrics", metrics},
              {"checksums", checksums_json(comparison.checksums)},
              {"config", config}};
  if (!comparison.config_fault.empty()) out["config_fault"] = comparison.config_fault;
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace titan::runs
