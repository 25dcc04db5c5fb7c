// Says in JSON all there is about a schedule.
#pragma once

#include <string>

#include "apps/schedule/schedule_report.h"

namespace titan {

// Returns one JSON object, docs/pipeline.md describes its entries.
std::string schedule_json(const ScheduleReport& report);

}  // namespace titan
