// Reads the configuration of `--config -` from standard input.
#pragma once

#include <string>

namespace titan::config {

constexpr const char* kStandardInput = "-";

// Returns all of standard input. A pipe, which cannot be read twice, is replaced by an in-memory
// file, so that this process and the ranks it starts can read it again. Throws ConfigError if it
// cannot be read, and in a rank of another launcher, because not all of its ranks receive the text.
std::string read_standard_input();

}  // namespace titan::config
