// `--config -`: the configuration on standard input.
#pragma once

#include <string>

namespace titan::config {

constexpr const char* kStandardInput = "-";

// All of standard input. What cannot be read twice, a pipe, is put into memory, in the place of standard input: so this
// can be asked again, by this process and by the ranks that it starts. Throws ConfigError when it cannot be read, and
// in a rank of another launcher, whose ranks do not all get the text.
std::string read_standard_input();

}  // namespace titan::config
