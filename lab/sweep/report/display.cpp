#include "lab/sweep/report/display.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/log.h"
#include "base/text.h"
#include "lab/sweep/results/results.h"

namespace titan::sweep {
namespace {

struct Size {
  std::size_t rows = 24, columns = 80;
};

Size terminal_size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) return {};
  return {size.ws_row, size.ws_col};
}

std::string counts(const Record& record) {
  std::vector<std::string> parts;
  for (const State state : {State::kDone, State::kRunning, State::kPaused, State::kPending, State::kFailed}) {
    const auto number = std::ranges::count(record.trials, state, &Trial::state);
    if (number > 0) parts.push_back(std::to_string(number) + " " + to_string(state));
  }
  return counted(std::ssize(record.trials), "trial") + ": " + join(parts, ", ");
}

}  // namespace

std::string trial_text(const Record& record, std::size_t trial) {
  const auto shortened = short_keys(record.keys);
  std::vector<std::string> parts;
  for (const auto& [key, value] : record.trials[trial].values)
    parts.push_back(shortened[static_cast<std::size_t>(std::ranges::find(record.keys, key) - record.keys.begin())] +
                    "=" + short_text(value));
  return "trial " + std::to_string(trial) + " (" + join(parts, ", ") + ")";
}

std::string live_table(const Record& record, const std::vector<Progress>& running, double seconds, std::size_t rows) {
  std::string out = "sweep " + record.name + ", " + counts(record) + ", " + format_duration(seconds) + "\n";
  for (const Progress& p : running) {
    out += "  running " + trial_text(record, p.trial) + ": step " + std::to_string(p.steps) + " of " +
           std::to_string(p.target);
    if (!std::isnan(p.objective)) out += ", " + record.objective.field + " " + objective_text(p.objective);
    out += "\n";
  }
  // Trials with a result rank first.
  const auto finished = static_cast<std::size_t>(
      std::ranges::count_if(record.trials, [](const Trial& t) { return !t.rung_objectives.empty(); }));
  if (finished == 0) return out;
  const std::size_t used = 3 + running.size();
  return out + ranking_table(record, std::min(finished, rows > used + 3 ? rows - used : 3));
}

Display::Display(Clock now) : terminal_(stdout_is_terminal()), now_(std::move(now)), started_(now_()) {}

bool Display::is_due() const { return terminal_ && (!drawn_ || now_() - *drawn_ >= std::chrono::seconds(1)); }

void Display::event(const std::string& line) {
  erase();
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void Display::refresh(const Record& record, const std::vector<Progress>& running) {
  if (!is_due()) return;
  erase();
  drawn_ = now_();
  const Size size = terminal_size();
  const double seconds = seconds_between(started_, *drawn_);
  // A line that wraps, or a table taller than the screen, could not be erased.
  for (const auto& line : split(live_table(record, running, seconds, std::min<std::size_t>(size.rows - 1, 20)), '\n')) {
    if (line.empty() || lines_ + 2 > size.rows) continue;
    std::printf("%.*s\n", static_cast<int>(size.columns - 1), line.c_str());
    ++lines_;
  }
  std::fflush(stdout);
}

void Display::close() {
  erase();
  std::fflush(stdout);
}

void Display::erase() {
  // Start with \r: the terminal writes ^C at the cursor.
  if (lines_ > 0) std::printf("\r\x1b[%zuA\x1b[J", lines_);
  lines_ = 0;
  drawn_.reset();
}

}  // namespace titan::sweep
