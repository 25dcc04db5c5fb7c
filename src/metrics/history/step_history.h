// A file with a row for each of some steps, one row a line, that goes on where a run goes on: what metrics.jsonl,
// metrics.csv and their like have in common.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace titan::metrics {

// Rows of an earlier run past the step it resumed from are dropped (their steps have run again), so every step has one
// row. One process writes a file at a time.
class StepHistory {
 public:
  struct Format {
    // The step of a line's row; nothing for a line that is not a row. Lines come without their newline.
    std::function<std::optional<std::int64_t>(std::string_view line)> step_of;
    std::string header = {};     // the first line of the file; empty: none
    bool needs_newline = false;  // a line without one may have lost its end, and step_of cannot tell
  };

  // `finished_steps`: the step that training resumes after, 0 for a fresh start. Touches nothing: a start that fails
  // before its first step leaves what an earlier one wrote.
  StepHistory(std::filesystem::path path, std::int64_t finished_steps, Format format);
  ~StepHistory();
  StepHistory(const StepHistory&) = delete;
  StepHistory& operator=(const StepHistory&) = delete;

  // Drops those rows; once, later calls change nothing. What is dropped is said in the log, also a line that is not a
  // row, such as the torn last line of a crash. The file is replaced in one step. One with another header is put aside
  // under the name of the step, PATH.until-step-N, unless nothing of it counts any more. The folder is made where it is
  // missing. Throws std::system_error naming the path.
  void begin();
  // Drops the rows past `finished_steps` now, those of this process too.
  void roll_back(std::int64_t finished_steps);
  // `row` without a newline. Begins where that has not happened. The line is with the operating system when this
  // returns: it survives the end of the process, not of the machine.
  void append(std::string_view row);

 private:
  void put_aside();
  void open();

  std::filesystem::path path_;
  std::int64_t finished_steps_;
  Format format_;
  bool begun_ = false;
  int fd_ = -1;
  std::string line_;
};

}  // namespace titan::metrics
