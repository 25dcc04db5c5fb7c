// Shows the progress of a sweep: on a terminal a table that is redrawn in place, elsewhere one line per event.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "lab/sweep/results/store.h"

namespace titan::sweep {

// Current progress of a running trial.
struct Progress {
  std::size_t trial = 0;
  std::int64_t steps = 0;
  std::int64_t target = 0;
  double objective = 0;  // NaN: none yet
};

class Display {
 public:
  explicit Display(Clock now = std::chrono::steady_clock::now);

  // Prints the line, above the table if there is one.
  void event(const std::string& line);

  // True on a terminal, if a second has passed since the table was drawn, or if it is not shown.
  bool is_due() const;
  // Redraws the table if it is due.
  void refresh(const Record& record, const std::vector<Progress>& running);

  // Removes the table; later output is printed normally.
  void close();

 private:
  void erase();

  bool terminal_;
  std::size_t lines_ = 0;  // of the table on the screen
  Clock now_;
  TimePoint started_;
  std::optional<TimePoint> drawn_;  // time of the last drawing; nullopt if the table is not shown
};

// Returns the table's text: a line of counts, running trials, the best so far.
std::string live_table(const Record& record, const std::vector<Progress>& running, double seconds, std::size_t rows);

// Returns "trial 3 (lr=0.01, shard=2)".
std::string trial_text(const Record& record, std::size_t trial);

}  // namespace titan::sweep
