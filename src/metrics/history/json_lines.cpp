#include "metrics/history/json_lines.h"

#include <nlohmann/json.hpp>

namespace titan::metrics {

std::optional<std::int64_t> step_of_json(std::string_view line) {
  const auto row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!row.is_object() || !row.contains("step") || !row["step"].is_number_integer()) return std::nullopt;
  return row["step"].get<std::int64_t>();
}

StepHistory::Format json_lines() { return {.step_of = step_of_json}; }

}  // namespace titan::metrics
