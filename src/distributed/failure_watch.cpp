#include "distributed/failure_watch.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <iterator>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/threads/start_thread.h"

namespace titan::dist {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kKey = "titan/failure";
constexpr auto kPeriod = milliseconds(200);
constexpr auto kLook = milliseconds(10);
// A process that stays suspended this long after a collective has timed out counts as stopped.
constexpr auto kSuspended = milliseconds(1000);
// A rank of another machine counts as lost after this many missed heartbeats, counted in this rank's own: two
// seconds, longer than ordinary load on its machine delays a rank.
constexpr std::int64_t kMissedBeats = 10;

// The rank that prints an error which all ranks have alike.
constexpr int kPrinter = 0;

constexpr const char* kEndedReason = "ended without reporting an error (killed, or out of memory?)";
// Processes of other machines cannot be inspected: only their silence is known.
constexpr const char* kSilentReason = "has fallen silent: its process was killed or stopped, or its machine is gone";
constexpr const char* kStoppedReason = "was stopped: something suspended its process (SIGSTOP, a debugger)";
constexpr const char* kStoreGone = "rank 0 or the launcher ended: the rendezvous store is gone";

std::string name_of(int rank) { return "rank " + std::to_string(rank) + ": "; }
std::string beat_key(int rank) { return "titan/beat/" + std::to_string(rank); }
std::string heard_key(int rank) { return "titan/heard/" + std::to_string(rank); }

// The format in the store: the reason in one line, then the rank that wrote it, then the common exit code, then the
// further lines.
std::string to_text(const WrittenFailure& failure) {
  return failure.reason + "\n" + std::to_string(failure.writer) + "\n" + std::to_string(failure.common_code) +
         failure.further_lines;
}
WrittenFailure written_failure_from_text(const std::vector<std::uint8_t>& bytes) {
  std::istringstream lines(std::string(bytes.begin(), bytes.end()));
  WrittenFailure failure{.reason = "", .writer = -1};
  std::getline(lines, failure.reason);
  lines >> failure.writer >> failure.common_code;
  failure.further_lines.assign(std::istreambuf_iterator<char>(lines), {});
  return failure;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Writes the failure unless there is one. Returns the first one. Throws the store's errors.
WrittenFailure write_if_first(FailureBoard& board, const WrittenFailure& failure) {
  const std::string text = to_text(failure);
  return written_failure_from_text(
      board.store->compareSet(kKey, {}, std::vector<std::uint8_t>(text.begin(), text.end())));
}

std::optional<std::string> read_reason(FailureBoard& board) {
  const auto failure = read_failure(board);
  return failure ? std::optional(failure->reason) : std::nullopt;
}

// Finds another rank of this machine whose process is in state `life`.
std::optional<int> find_rank(const FailureBoard& board, Life life) {
  for (int rank = 0; rank < static_cast<int>(board.processes.size()); ++rank)
    if (rank != board.rank && life_of(board.processes[rank]) == life) return rank;
  return std::nullopt;
}

// Reports `rank` as failed to all ranks. Returns the first reason in the store, which `rank` may have written before
// it ended.
std::string report_lost(FailureBoard& board, int rank, const std::string& reason) {
  report_failure(board, rank, reason);
  return read_reason(board).value_or(name_of(rank) + reason);
}

// Finds ranks of other machines whose heartbeat has stopped, measured in this rank's own heartbeats.
class Beats {
 public:
  explicit Beats(FailureBoard& board) : board_(board), seen_(board.processes.size(), {-1, 0}) {}

  std::optional<int> find_silent() {
    const std::int64_t own = board_.store->add(beat_key(board_.rank), 0);
    for (int rank = 0; rank < static_cast<int>(seen_.size()); ++rank) {
      if (rank == board_.rank || life_of(board_.processes[rank]) != Life::kUnknown) continue;
      auto& [count, since] = seen_[rank];
      const std::int64_t now = board_.store->add(beat_key(rank), 0);
      if (now != count) {
        count = now;
        since = own;
      } else if (own - since >= kMissedBeats) {
        return rank;
      }
    }
    return std::nullopt;
  }

 private:
  FailureBoard& board_;
  std::vector<std::pair<std::int64_t, std::int64_t>>
      seen_;  // per rank: its last count, and this rank's own count when it arrived
};

// Returns the state of the process that serves the store; kUnknown if this process or a launcher serves it.
Life store_life(const FailureBoard& board) noexcept {
  if (board.store_rank < 0 || board.store_rank == board.rank) return Life::kUnknown;
  return life_of(board.processes[board.store_rank]);
}

std::string of_store_rank(const FailureBoard& board, const char* reason) { return name_of(board.store_rank) + reason; }

// True if `rank` has read the failure, or never will because its process has ended or is suspended.
bool has_heard(FailureBoard& board, int rank) {
  const Life life = life_of(board.processes[rank]);
  return life == Life::kEnded || life == Life::kStopped || board.store->check({heard_key(rank)});
}

// Detects that the same other rank of this machine has been suspended for kSuspended.
class StandingRank {
 public:
  explicit StandingRank(const FailureBoard& board) : board_(board) {}

  bool look() {
    const auto now = steady_clock::now();
    const auto rank = find_rank(board_, Life::kStopped);
    if (!rank || rank != rank_) since_ = now;
    rank_ = rank;
    return rank && now - since_ >= kSuspended;
  }

 private:
  const FailureBoard& board_;
  std::optional<int> rank_;
  steady_clock::time_point since_;
};

// Returns N of "rank N: ..."; nullopt for other texts.
std::optional<int> rank_to_blame(const std::string& reason) {
  int rank = 0;
  constexpr std::string_view kStart = "rank ";
  if (!reason.starts_with(kStart)) return std::nullopt;
  const auto [end, error] = std::from_chars(reason.data() + kStart.size(), reason.data() + reason.size(), rank);
  return error == std::errc() ? std::optional(rank) : std::nullopt;
}

}  // namespace

void HeardFailure::keep(const WrittenFailure& failure) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = failure;
}

std::optional<WrittenFailure> HeardFailure::get() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::string why_store_is_gone(const FailureBoard& board) noexcept {
  const auto deadline = steady_clock::now() + kFailurePatience;
  const auto may_say_more = [&] { return store_life(board) == Life::kRuns && !board.heard->get(); };
  while (may_say_more() && steady_clock::now() < deadline) std::this_thread::sleep_for(kLook);
  const bool has_ended = store_life(board) == Life::kEnded;
  if (const auto failure = board.heard->get()) return failure->reason;
  return has_ended ? of_store_rank(board, kEndedReason) : kStoreGone;
}

std::optional<WrittenFailure> read_failure(FailureBoard& board) {
  if (auto failure = board.heard->get()) return failure;
  if (!board.store->check({kKey})) return std::nullopt;
  const WrittenFailure failure = written_failure_from_text(board.store->get(kKey));
  board.heard->keep(failure);  // before the other ranks see it and leave
  board.store->set(heard_key(board.rank), std::vector<std::uint8_t>{1});
  return failure;
}

FailureWatch::FailureWatch(FailureBoard board, std::function<void(const std::string&)> on_failure,
                           std::function<void(FailureBoard&)> on_look)
    : board_(std::move(board)),
      on_failure_(std::move(on_failure)),
      on_look_(std::move(on_look)),
      thread_(start_thread("watches the other ranks", [this] { run(); })) {}

FailureWatch::~FailureWatch() { stop(); }

void FailureWatch::stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

void FailureWatch::run() {
  auto last_look = steady_clock::now();
  while (!stopping_) {
    std::this_thread::sleep_for(milliseconds(20));
    if (steady_clock::now() - last_look < kPeriod) continue;
    last_look = steady_clock::now();
    std::optional<WrittenFailure> failure;
    try {
      board_.store->add(beat_key(board_.rank), 1);
      if (on_look_) on_look_(board_);
      failure = read_failure(board_);
      if (!failure) {
        if (const auto lost = find_rank(board_, Life::kEnded)) {
          const std::string reason = report_lost(board_, *lost, kEndedReason);
          failure = read_failure(board_).value_or(WrittenFailure{.reason = reason, .writer = -1});
        }
      }
      if (!failure) continue;
    } catch (const std::exception&) {
      if (!stopping_) failure = WrittenFailure{.reason = why_store_is_gone(board_), .writer = -1};
    }
    // A rank that blamed itself prints the reason on the thread that failed. If another rank blamed it, that thread
    // may hang, so the watch reports.
    const bool is_own = failure && failure->writer == board_.rank && rank_to_blame(failure->reason) == board_.rank;
    if (!stopping_ && !is_own) on_failure_(failure->reason);
    return;
  }
}

std::optional<int> report_failure(FailureBoard& board, int rank, const std::string& reason) noexcept {
  try {
    const std::string line = first_line(reason);
    const std::string said = write_if_first(board, {.reason = name_of(rank) + line, .writer = board.rank}).reason;
    const auto by = rank_to_blame(said);
    return by && *by != rank && said == name_of(*by) + line ? by : std::nullopt;
  } catch (...) {  // the store is gone: nobody to tell
    return std::nullopt;
  }
}

bool report_common_failure(FailureBoard& board, const std::string& reason, int exit_code) noexcept {
  try {
    const std::string line = first_line(reason);
    const WrittenFailure own{.reason = name_of(kPrinter) + line,
                             .writer = board.rank,
                             .common_code = exit_code,
                             .further_lines = reason.substr(line.size())};
    const WrittenFailure first = write_if_first(board, own);
    read_failure(board);  // marks it as read
    return first.reason == own.reason && first.common_code == own.common_code;
  } catch (...) {  // the store is gone: nobody to tell
    return false;
  }
}

bool wait_for_printer(FailureBoard& board, milliseconds patience) noexcept {
  if (board.rank == kPrinter) return true;
  const auto deadline = steady_clock::now() + patience;
  try {
    while (!board.store->check({heard_key(kPrinter)})) {
      if (life_of(board.processes[kPrinter]) == Life::kEnded || steady_clock::now() >= deadline) return false;
      std::this_thread::sleep_for(kLook);
    }
    return true;
  } catch (...) {  // the store went with rank 0, which leaves only once this rank has heard
    return true;
  }
}

std::optional<std::string> find_failure(FailureBoard& board, milliseconds patience,
                                        const std::function<bool()>& is_enough) {
  Beats beats(board);
  StandingRank standing(board);
  const auto deadline = steady_clock::now() + patience;
  do {
    if (const auto failure = board.heard->get()) return failure->reason;
    // A store whose process is suspended does not answer; asking it would take the full timeout.
    if (store_life(board) != Life::kStopped) {
      if (auto reason = read_reason(board)) return reason;
      if (const auto lost = find_rank(board, Life::kEnded)) return report_lost(board, *lost, kEndedReason);
      if (const auto silent = beats.find_silent()) return report_lost(board, *silent, kSilentReason);
      if (is_enough && is_enough()) return std::nullopt;
    }
    if (standing.look()) return std::nullopt;
    std::this_thread::sleep_for(kLook);
  } while (steady_clock::now() < deadline);
  return std::nullopt;
}

std::optional<std::string> find_stopped_rank(FailureBoard& board) {
  if (store_life(board) == Life::kStopped) return of_store_rank(board, kStoppedReason);
  if (const auto stopped = find_rank(board, Life::kStopped)) return report_lost(board, *stopped, kStoppedReason);
  return std::nullopt;
}

void leave_in_order(FailureBoard& board, const std::string& reason, milliseconds patience) noexcept {
  try {
    const auto deadline = steady_clock::now() + patience;
    const int size = static_cast<int>(board.processes.size());
    const auto blamed = rank_to_blame(reason);
    const auto may_leave = [&] {
      if (board.store_rank == board.rank) {
        for (int rank = 0; rank < size; ++rank)
          if (rank != board.rank && !has_heard(board, rank)) return false;
      }
      if (!blamed || *blamed == board.rank || *blamed >= size) return true;
      return life_of(board.processes[*blamed]) != Life::kRuns;
    };
    while (!may_leave() && steady_clock::now() < deadline) std::this_thread::sleep_for(kLook);
  } catch (...) {  // the store is gone: nobody to wait for
  }
}

}  // namespace titan::dist
