#include "metrics/history/json_lines.h"

#include <utility>

#include "base/limits/parse_json.h"

namespace titan::metrics {
namespace {

std::optional<std::int64_t> step_of(std::string_view line) {
  const auto row = parse_row(line);
  return row ? std::optional((*row)["step"].get<std::int64_t>()) : std::nullopt;
}

}  // namespace

std::optional<nlohmann::json> parse_row(std::string_view line) {
  auto row = try_parse_json<nlohmann::json>(line);
  if (!find_integer(row, "step")) return std::nullopt;
  return std::optional(std::move(row));
}

StepHistory::Format json_lines(std::string row) { return {.step_of = step_of, .row = std::move(row)}; }

}  // namespace titan::metrics
