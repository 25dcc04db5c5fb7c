// Explains errors in text that is not TOML, in words about the file instead of the parser.
#pragma once

#include <string>
#include <string_view>

#include "config/keys/source.h"

namespace titan::config {

// `description` is the parser's, `at` is where it stopped in `text`. Recognizes mistakes of people who
// write Python or YAML, or who copied from a web page: bare words, True, typographic quotes, colons.
std::string syntax_message(std::string_view description, std::string_view text, Position at);

}  // namespace titan::config
