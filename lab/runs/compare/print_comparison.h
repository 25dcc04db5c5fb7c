// Prints a comparison, as text for people and as JSON for programs.
#pragma once

#include <string>

#include "lab/runs/compare/compare.h"

namespace titan::runs {

std::string comparison_text(const Comparison& comparison);

// Returns one JSON object with a newline. Numbers that JSON cannot express are "NaN", "Infinity" and "-Infinity".
std::string comparison_json(const Comparison& comparison);

}  // namespace titan::runs
