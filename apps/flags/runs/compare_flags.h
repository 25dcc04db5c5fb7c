// Flags of `titan-train compare`. No torch: completion and --help work without the engine.
#pragma once

#include <string>

#include "apps/flags/parse_command.h"
#include "lab/runs/compare/compare.h"

namespace titan {

struct CompareFlags {
  std::string run_a, run_b;
  runs::CompareOptions options;
  bool json = false;
};

// Declares help, arguments and flags on `app`. Parsing writes to `flags`, which must outlive `app`.
void declare(CLI::App& app, CompareFlags& flags);

}  // namespace titan
