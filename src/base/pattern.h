// The patterns with which keys of the configuration name parameters and modules.
#pragma once

#include <string>

namespace titan {

// True if the whole of `name` matches the pattern: * is any text, dots included, ? one character, [..] one of several.
bool matches_pattern(const std::string& pattern, const std::string& name);

}  // namespace titan
