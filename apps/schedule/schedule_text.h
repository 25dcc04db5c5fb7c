// Draws a schedule in text.
#pragma once

#include <string>

#include "apps/schedule/schedule_report.h"

namespace titan {

// Returns a line per rank, in which time runs to the right, and a table of how long ranks wait and what they keep.
// Lines of the drawing have at most `columns` letters; the text says what is left out.
std::string schedule_text(const ScheduleReport& report, int columns);

}  // namespace titan
