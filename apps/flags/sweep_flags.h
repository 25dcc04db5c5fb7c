// Flags of `titan-train sweep`. No torch: completion and --help work without the engine.
#pragma once

#include <optional>
#include <string>

#include "apps/flags/parse_command.h"
#include "lab/sweep/plan/grid_words.h"
#include "lab/sweep/sweep.h"

namespace titan {

struct SweepFlags {
  std::string file;
  sweep::GridWords words;
  std::optional<std::string> report;  // a sweep's folder
  std::optional<std::string> objective;
  sweep::SweepOptions options;
};

// Declares help, arguments and flags on `app`. Parsing writes to `flags`, which must outlive `app`.
void declare(CLI::App& app, SweepFlags& flags);

}  // namespace titan
