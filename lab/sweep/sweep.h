// A sweep from its file to its report: what `titan-train sweep` does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace titan::sweep {

struct SweepOptions {
  std::filesystem::path file;
  std::optional<std::string> text;  // what the file will say: it is written when the sweep starts
  bool dry_run = false;             // list the trials, touch nothing
  bool retry_failed = false;
  std::optional<std::string> launcher;       // instead of the file's
  std::optional<std::int64_t> max_parallel;  // instead of the file's
};

// Prints to standard output. Gives the exit code (see Driver::run). Throws ConfigError with everything wrong with the
// file and the trials' configurations before any trial starts.
int run_sweep(const SweepOptions& options);

// Makes results.csv and report.html of a sweep's folder again and prints the ranking; the sweep may be running. With
// `objective`, a column, they rank by that, until they are made again; what the sweep itself looks for stays.
int remake_report(const std::filesystem::path& folder, const std::optional<std::string>& objective = std::nullopt);

}  // namespace titan::sweep
