// A comparison for people and for programs.
#pragma once

#include <string>

#include "lab/runs/compare/compare.h"

namespace titan::runs {

std::string comparison_text(const Comparison& comparison);

// One JSON object, with an end of line. Numbers that JSON has no word for are "NaN", "Infinity" and "-Infinity".
std::string comparison_json(const Comparison& comparison);

}  // namespace titan::runs
