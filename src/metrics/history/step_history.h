// Append-only file with one line per logged step, cut to the resume step after a restart. Used for metrics.jsonl,
// metrics.csv and similar files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/files/path_watch.h"

namespace titan::metrics {

// Drops rows of an earlier run past the step it resumed from (their steps run again), so every step has one row. Only
// one process may write a file at a time.
class StepHistory {
 public:
  struct Format {
    // Returns the step of a line's row, or nullopt if the line is not a row. Lines come without their newline.
    std::function<std::optional<std::int64_t>(std::string_view line)> step_of;
    std::string row = "a row of metrics";  // what a line is, for warnings
    std::string header = {};               // the first line of the file; empty if there is none
    bool needs_newline = false;            // drop a last line without newline: step_of cannot tell that it was cut
  };

  // `finished_steps`: the step that training resumes after, 0 for a fresh start. Touches no file: a start that fails
  // before its first step leaves earlier rows unchanged.
  StepHistory(std::filesystem::path path, std::int64_t finished_steps, Format format);
  ~StepHistory();
  StepHistory(const StepHistory&) = delete;
  StepHistory& operator=(const StepHistory&) = delete;

  // Drops rows past `finished_steps`; only the first call has an effect. Logs what it drops, also lines that are not
  // rows, such as a last line torn by a crash. Replaces the file in one step. Renames a file with another header to
  // PATH.until-step-N, where N is the step, unless none of it counts any more. Creates a missing folder. Throws
  // std::system_error naming the path.
  void begin();
  // Drops the rows past `finished_steps` now, including those of this process. Throws as check() does.
  void roll_back(std::int64_t finished_steps);
  // Appends `row` (without a newline); calls begin() first. When this returns, the operating system has the line: it
  // survives the end of the process, not of the machine. Throws as check() does.
  void append(std::string_view row);
  // Throws std::system_error naming the path if the rows of this process are not there any more: the file was removed
  // or replaced.
  void check() const;

 private:
  void put_aside();
  void open();

  std::filesystem::path path_;
  std::int64_t finished_steps_;
  Format format_;
  bool begun_ = false;
  int fd_ = -1;
  std::optional<PathWatch> watch_;  // of fd_
  std::string line_;
};

}  // namespace titan::metrics
