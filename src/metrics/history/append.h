// Text and numbers behind what a string holds already, whose memory is kept: a row asks the allocator for nothing.
#pragma once

#include <spdlog/fmt/fmt.h>

#include <cmath>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace titan::metrics {

template <typename... Args>
void append(std::string& text, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
}

// "NaN", "Infinity" or "-Infinity", as files of rows have it; empty for a number that is finite.
inline std::string_view name_of_not_finite(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return "";
}

}  // namespace titan::metrics
