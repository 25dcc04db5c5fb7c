// Flags of `titan-train schedule`. No torch: completion and --help work without the engine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/flags/parse_command.h"

namespace titan {

struct ScheduleFlags {
  std::string name;  // empty: only the order of --csv
  std::optional<int> ranks, microbatches, stages_per_rank;
  std::string csv;                        // empty: the order that the schedule has by its name
  std::vector<double> costs = {1, 1, 1};  // forward, input gradient, weight gradient
  std::string format = "text";
  std::string svg;  // empty: no drawing
  std::optional<int> columns;
};

// Declares help, arguments and flags on `app`. Parsing writes to `flags`, which must outlive `app`.
void declare(CLI::App& app, ScheduleFlags& flags);

}  // namespace titan
