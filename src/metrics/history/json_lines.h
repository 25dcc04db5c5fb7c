// Histories of JSON objects, one per line, each with a "step".
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "metrics/history/step_history.h"

namespace titan::metrics {

// Returns the object, or nullopt if the line is not such an object.
std::optional<nlohmann::json> parse_row(std::string_view line);

// Format of such a history. `row`: what a line is, for warnings. Pass rows to StepHistory::append() as text without a
// newline.
StepHistory::Format json_lines(std::string row = "a row of metrics");

}  // namespace titan::metrics
