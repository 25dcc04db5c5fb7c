// Lists all environment variables that are not keys (see environment.h): of the program, its scripts and its tests.
// docs/config.md prints the list, and a test compares it with the sources.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/command_line/environment.h"

namespace titan::config {

struct Variable {
  std::string_view name;
  std::string_view value;    // the value that it takes, "a folder"
  std::string_view choices;  // "0,1"; empty: anything
  std::string_view doc;
  bool for_developers;  // for scripts and tests, or passed between processes of the program
};

std::span<const Variable> variables();

// Checks the variables of `environment` that do not set a key. Invalid values are errors. Unknown TITAN_* variables are
// warnings: they have no effect.
void check_variables(const Environment& environment, std::vector<std::string>& errors,
                     std::vector<std::string>& warnings);

}  // namespace titan::config
