// Writes numbers into a config.json.
#pragma once

#include <spdlog/fmt/fmt.h>

#include <string>

namespace titan::models {

// Returns a float as Python writes it: transformers rejects integers for float keys.
inline std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

}  // namespace titan::models
