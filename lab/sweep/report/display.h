// What a person sees while a sweep runs: on a terminal a table that is redrawn in place, elsewhere a line an event.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "lab/sweep/results/store.h"

namespace titan::sweep {

// A running trial at this moment.
struct Progress {
  std::size_t trial = 0;
  std::int64_t steps = 0;
  std::int64_t target = 0;
  double objective = 0;  // NaN: none yet
};

class Display {
 public:
  explicit Display(Clock now = std::chrono::steady_clock::now);

  // Prints the line, above the table where there is one.
  void event(const std::string& line);

  // True on a terminal, when a second has passed since the table was drawn or a line took its place.
  bool is_due() const;
  // Redraws the table if it is due.
  void refresh(const Record& record, const std::vector<Progress>& running);

  // Removes the table: what follows is printed as usual.
  void close();

 private:
  void erase();

  bool terminal_;
  std::size_t lines_ = 0;  // of the table that is on the screen
  Clock now_;
  TimePoint started_;
  std::optional<TimePoint> drawn_;  // when; nothing after a line took its place
};

// The table's text: a line of counts, running trials, the best so far.
std::string live_table(const Record& record, const std::vector<Progress>& running, double seconds, std::size_t rows);

// "trial 3 (lr=0.01, shard=2)"
std::string trial_text(const Record& record, std::size_t trial);

}  // namespace titan::sweep
