#include "distributed/hang_report.h"

#include <cstdint>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "base/process/program_name.h"
#include "distributed/flight/dump.h"
#include "distributed/flight/find_culprit.h"
#include "distributed/flight/rank_state.h"

namespace titan::dist {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kAskKey = "titan/hang";
// Time before the ranks are asked. A peer that was just killed is noticed earlier, and then no rank is asked.
constexpr auto kBeforeAsking = milliseconds(300);
// Ranks that run but do not answer get this many times `patience` in addition.
constexpr int kMorePatience = 9;
constexpr std::size_t kMostLines = 16;

std::string state_key(int rank) { return "titan/state/" + std::to_string(rank); }

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

// Asks the ranks for their states and collects the answers.
class Answers {
 public:
  explicit Answers(FailureBoard& board) : board_(board), states_(board.processes.size()) {
    for (std::size_t rank = 0; rank < states_.size(); ++rank) keys_.push_back(state_key(static_cast<int>(rank)));
  }

  // Call repeatedly. Asks after kBeforeAsking. Returns true once all ranks have answered.
  bool look() {
    if (steady_clock::now() < ask_at_) return false;
    if (!std::exchange(is_asked_, true)) board_.store->compareSet(kAskKey, {}, bytes_of(std::to_string(board_.rank)));
    return is_complete_ = is_complete_ || board_.store->check(keys_);
  }

  bool is_complete() const { return is_complete_; }

  // Returns the states of the ranks that have answered.
  const std::vector<std::optional<RankState>>& read() {
    for (std::size_t rank = 0; rank < states_.size(); ++rank) {
      if (states_[rank] || !board_.store->check({keys_[rank]})) continue;
      const auto bytes = board_.store->get(keys_[rank]);
      states_[rank] = rank_state_from_json({bytes.begin(), bytes.end()});
    }
    return states_;
  }

 private:
  FailureBoard& board_;
  std::vector<std::string> keys_;
  std::vector<std::optional<RankState>> states_;
  steady_clock::time_point ask_at_ = steady_clock::now() + kBeforeAsking;
  bool is_asked_ = false;
  bool is_complete_ = false;
};

std::string start_of_line(int rank) { return std::string(program_name()) + ": rank " + std::to_string(rank) + ": "; }

// Returns the line that names the dump files; empty if none is written.
std::string line_of_files(int rank) {
  const auto file = dump_file();
  if (file.empty()) return "";
  return start_of_line(rank) + "its collectives and the stacks of its threads are in " + file.string() +
         ", those of the other ranks beside it\n";
}

// Prints in one write, so that other ranks' output does not come in between.
void print_summary(int rank, const std::vector<std::optional<RankState>>& states) {
  std::string text = start_of_line(rank) + "a collective did not end. What the ranks do:\n";
  const auto lines = summarize(states);
  for (std::size_t i = 0; i < lines.size() && i < kMostLines; ++i) text += "  " + lines[i] + "\n";
  if (lines.size() > kMostLines) text += "  ... and " + std::to_string(lines.size() - kMostLines) + " more\n";
  text += line_of_files(rank);
  std::fputs(text.c_str(), stderr);
}

// Returns the reason if a rank of this machine is suspended; otherwise nullopt. If that rank serves the store, the
// other ranks cannot be asked, and each writes and names its own file.
std::optional<std::string> conclude_stopped(FailureBoard& board, Answers& answers) {
  const bool has_store = board.store_rank < 0 || life_of(board.processes[board.store_rank]) != Life::kStopped;
  // Read before the reason is in the store: from then on, this rank's watch may end the process.
  const auto states = has_store ? answers.read() : std::vector<std::optional<RankState>>();
  const auto reason = find_stopped_rank(board);
  if (!reason) return std::nullopt;
  if (!has_store) {
    start_dump(*reason);
    std::fputs(line_of_files(board.rank).c_str(), stderr);
    return reason;
  }
  const auto written = read_failure(board);
  if (written && written->writer == board.rank) print_summary(board.rank, states);
  return reason;
}

// Returns the reason. The first rank that finds it writes it, as its own if none is to blame, and prints the summary.
std::string conclude(FailureBoard& board, const std::vector<std::optional<RankState>>& states,
                     const std::string& symptom) {
  const auto found = find_culprit(states);
  const bool blames = found && found->rank >= 0;
  const std::string own = found ? symptom + "; " + found->reason : symptom;
  report_failure(board, blames ? found->rank : board.rank, blames ? found->reason : own);
  const auto written = read_failure(board);
  if (!written) return own;
  const bool is_first = written->writer == board.rank;
  if (is_first && found) print_summary(board.rank, states);
  return is_first && !blames ? own : written->reason;
}

}  // namespace

void HangAnswer::look(FailureBoard& board) {
  if (is_given_ || !board.store->check({kAskKey})) return;
  is_given_ = true;
  board.store->set(state_key(board.rank), bytes_of(to_json(current_state(board.rank))));
  const auto by = board.store->get(kAskKey);
  start_dump("rank " + std::to_string(board.rank) + ", asked by rank " + std::string(by.begin(), by.end()) +
             ", for which a collective failed");
}

std::string diagnose_hang(FailureBoard& board, const std::string& symptom, milliseconds patience) noexcept {
  try {
    Answers answers(board);
    const auto look = [&] { return answers.look(); };
    if (auto reason = find_failure(board, patience, look)) return *reason;
    if (!answers.is_complete()) {
      // Checked only now: a process that was suspended for a moment is not the cause.
      if (auto stopped = conclude_stopped(board, answers)) return *stopped;
      if (auto reason = find_failure(board, kMorePatience * patience, look)) return *reason;
    }
    return conclude(board, answers.read(), symptom);
  } catch (...) {
    return why_store_is_gone(board);
  }
}

}  // namespace titan::dist
