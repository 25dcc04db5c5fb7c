// A check of an option's value for CLI11, which words its own as a range of 300 digits.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <string>

namespace titan {

inline CLI::Validator at_least_one() {
  return {[](const std::string& text) -> std::string {
            std::int64_t value = 0;
            const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
            if (fault == std::errc() && end == text.data() + text.size() && value >= 1) return "";
            return "expected an integer, at least 1; found \"" + text + "\"";
          },
          "at least 1"};
}

}  // namespace titan
