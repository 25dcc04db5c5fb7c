// A check of flag values, and notes that tell completion which values to suggest.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <string>
#include <vector>

#include "base/text.h"

namespace titan {

// Returns a check that `rule` holds for the whole text, read as a number. `name` says it in --help and in the message.
template <typename Number, typename Rule>
CLI::Validator number_check(const std::string& kind, const std::string& name, const Rule& rule) {
  return {[=](const std::string& text) -> std::string {
            Number value{};
            const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
            if (fault == std::errc() && end == text.data() + text.size() && rule(value)) return "";
            return "expected " + kind + ", " + name + "; found \"" + text + "\"";
          },
          name};
}

// Returns a check for integers of at least 1. The message of CLI11's own check has a range of 300 digits.
inline CLI::Validator at_least_one() {
  return number_check<std::int64_t>("an integer", "at least 1", [](std::int64_t value) { return value >= 1; });
}

inline CLI::Validator integer_between(std::int64_t least, std::int64_t most) {
  return number_check<std::int64_t>("an integer", std::to_string(least) + " to " + std::to_string(most),
                                    [=](std::int64_t value) { return value >= least && value <= most; });
}

inline CLI::Validator even_between(std::int64_t least, std::int64_t most) {
  return number_check<std::int64_t>(
      "an even number", std::to_string(least) + " to " + std::to_string(most),
      [=](std::int64_t value) { return value >= least && value <= most && value % 2 == 0; });
}

// Returns a check that CLI11 does not have: its own let nan through.
inline CLI::Validator number_between(double least, double most, const std::string& name) {
  return number_check<double>("a number", name, [=](double value) { return value >= least && value <= most; });
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
