// Runs a sweep from its file to its report: the command `titan-train sweep`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace titan::sweep {

struct SweepOptions {
  std::filesystem::path file;
  std::optional<std::string> text;  // content of the file, which is written when the sweep starts
  bool dry_run = false;             // list the trials, touch nothing
  bool retry_failed = false;
  std::optional<std::string> launcher;       // instead of the file's
  std::optional<std::int64_t> max_parallel;  // instead of the file's
};

// Prints to standard output. Returns the exit code (see Driver::run). Throws ConfigError with all
// errors of the file and of the trials' configurations before any trial starts.
int run_sweep(const SweepOptions& options);

// Writes results.csv and report.html of a sweep's folder again and prints the ranking; the sweep may be running.
// `objective`, a column, replaces the ranking's objective until the next report; the sweep itself keeps its own.
int remake_report(const std::filesystem::path& folder, const std::optional<std::string>& objective = std::nullopt);

}  // namespace titan::sweep
