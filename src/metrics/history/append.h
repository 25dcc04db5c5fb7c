// Appends formatted values to a string and reuses its memory, so that a row does not allocate.
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

// Returns "NaN", "Infinity" or "-Infinity", as written in files of rows, or "" for a finite value.
inline std::string_view name_of_not_finite(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return "";
}

}  // namespace titan::metrics
