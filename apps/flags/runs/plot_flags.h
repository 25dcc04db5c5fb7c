// Flags of `titan-train plot`. No torch: completion and --help work without the engine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/flags/parse_command.h"

namespace titan {

struct PlotFlags {
  std::vector<std::string> runs, metrics;
  double smooth = 0;
  bool log = false;
  std::optional<int> columns, rows;
};

// Declares help, arguments and flags on `app`. Parsing writes to `flags`, which must outlive `app`.
void declare(CLI::App& app, PlotFlags& flags);

}  // namespace titan
