// Flags of `titan-train supervise`. No torch: completion and --help work without the engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/flags/parse_command.h"

namespace titan {

struct SuperviseFlags {
  std::int64_t max_restarts = 3;
  std::vector<std::string> command;
};

// Declares help, arguments and flags on `app`. Parsing writes to `flags`, which must outlive `app`.
void declare(CLI::App& app, SuperviseFlags& flags);

}  // namespace titan
