// A check of flag values, and notes that tell completion which values to suggest.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <string>
#include <vector>

#include "base/text.h"

namespace titan {

// Returns a check for integers of at least 1. The message of CLI11's own check has a range of 300 digits.
inline CLI::Validator at_least_one() {
  return {[](const std::string& text) -> std::string {
            std::int64_t value = 0;
            const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
            if (fault == std::errc() && end == text.data() + text.size() && value >= 1) return "";
            return "expected an integer, at least 1; found \"" + text + "\"";
          },
          "at least 1"};
}

// Names of the notes below. A note is an inactive check: it refuses nothing, and --help does not show it.
inline constexpr const char* kSuggestedValues = "suggested values";
inline constexpr const char* kSuggestedPath = "suggested path";

inline void add_note(CLI::Option* option, const std::string& text, const char* name) {
  option->check(CLI::Validator([](std::string&) { return std::string(); }, text, name).active(false));
}

// Makes completion offer `values` for the option.
inline void suggest(CLI::Option* option, const std::vector<std::string>& values) {
  add_note(option, join(values, ","), kSuggestedValues);
}

// Makes completion offer files for the option.
inline void suggest_path(CLI::Option* option) { add_note(option, "path", kSuggestedPath); }

// Declares --device and --dtype of commands that load a trained model (TrainedModelOptions).
inline void add_device_and_dtype(CLI::App& app, std::string& device, std::string& dtype) {
  app.add_option("--device", device, "auto: a GPU when there is one")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--dtype", dtype,
                 "of the weights; auto: bfloat16 when they were saved as such or are on a GPU, else float32")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "float32", "bfloat16"}));
}

}  // namespace titan
