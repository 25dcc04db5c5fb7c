// Flags of `titan-train inspect`. No torch: completion and --help work without the engine.
#pragma once

#include <string>

#include "apps/flags/parse_command.h"

namespace titan {

struct InspectFlags {
  std::string path;
  bool verify = false;
  bool json = false;
  bool all = false;
  std::string pattern;  // selects keys
};

// Declares help, arguments and flags on `app`. Parsing writes to `flags`, which must outlive `app`.
void declare(CLI::App& app, InspectFlags& flags);

}  // namespace titan
