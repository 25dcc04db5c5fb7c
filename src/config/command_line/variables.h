// Variables of the environment that are not keys (those are environment.h's): of the program, of its scripts, of its
// tests. All of them stand here; docs/config.md prints the list, and a test compares it with the sources.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/command_line/environment.h"

namespace titan::config {

struct Variable {
  std::string_view name;
  std::string_view value;    // what it takes, "a folder"
  std::string_view choices;  // "0,1"; empty: anything
  std::string_view doc;
  bool for_developers;  // of scripts and tests, or handed from one process of the program to another
};

std::span<const Variable> variables();

// Looks at those of `environment` that name no key. A value that its variable does not take adds to `errors`, a
// variable that is not in the list to `warnings`: nobody reads it, which whoever set it does not know.
void check_variables(const Environment& environment, std::vector<std::string>& errors,
                     std::vector<std::string>& warnings);

}  // namespace titan::config
