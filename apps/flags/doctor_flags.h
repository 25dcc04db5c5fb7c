// Flags of `titan-train doctor`. No torch: completion and --help work without the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/flags/parse_command.h"

namespace titan {

struct DoctorFlags {
  std::optional<std::string> config_file;
  std::optional<std::int64_t> nproc;  // read by the program that starts the ranks
  bool oversubscribe = false;
  bool json = false;
  std::vector<std::string> keys;  // flags of the run to check
};

// Declares help, arguments and flags on `app`. Parsing writes to `flags`, which must outlive `app`.
void declare(CLI::App& app, DoctorFlags& flags);

}  // namespace titan
