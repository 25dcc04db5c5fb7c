// Flags of `titan-train report`. No torch: completion and --help work without the engine.
#pragma once

#include <string>
#include <vector>

#include "apps/flags/parse_command.h"

namespace titan {

struct ReportFlags {
  std::vector<std::string> runs;
  std::string output;
};

// Declares help, arguments and flags on `app`. Parsing writes to `flags`, which must outlive `app`.
void declare(CLI::App& app, ReportFlags& flags);

}  // namespace titan
