// Flags of `titan-train init`. No torch: completion and --help work without the engine.
#pragma once

#include "apps/flags/parse_command.h"
#include "models/starter.h"

namespace titan {

struct InitFlags : models::StarterOptions {
  std::optional<std::string> examples;  // folder to copy configs/, assets/, deploy/ and examples/ to
};

// Declares help, arguments and flags on `app`. Parsing writes to `flags`, which must outlive `app`.
void declare(CLI::App& app, InitFlags& flags);

}  // namespace titan
