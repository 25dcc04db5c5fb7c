// Draws a schedule as an SVG file.
#pragma once

#include <string>

#include "apps/schedule/schedule_report.h"

namespace titan {

// Returns a drawing that needs no other file: a line per rank, time to the right, a color per kind of action, lighter
// for a rank's later stages. It follows the reader's choice of light or dark.
std::string schedule_svg(const ScheduleReport& report);

}  // namespace titan
