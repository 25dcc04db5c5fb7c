#include "lab/page/page.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace titan::page {

std::string with_data(std::string_view page_template, std::string_view json) {
  std::string safe;
  for (const char c : json) {
    if (c == '<' || c == '>' || c == '&') {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", static_cast<unsigned>(c));
      safe += escaped;
    } else {
      safe += c;
    }
  }
  constexpr std::string_view kPlace = "@DATA@";
  std::string page(page_template);
  return page.replace(page.find(kPlace), kPlace.size(), safe);
}

nlohmann::ordered_json short_number(double value, int digits) {
  if (!std::isfinite(value)) return nullptr;
  char text[32];
  std::snprintf(text, sizeof(text), "%.*g", digits, value);
  return std::strtod(text, nullptr);
}

}  // namespace titan::page
