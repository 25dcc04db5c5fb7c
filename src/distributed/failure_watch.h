// Makes every rank end with the same clear reason. The first rank to fail writes its reason to the job's store before
// it unwinds. A thread on every other rank polls the store a few times a second and ends its process with that
// reason. The same thread checks that the other ranks of this machine are alive, and counts up a heartbeat key, by
// which ranks of other machines notice that this one was killed. Without it, a rank that waits for data or writes a
// checkpoint would learn of a lost peer only at the next collective's timeout.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "base/process/rank_process.h"

namespace titan::dist {

// The longest time that a rank, before it ends, waits for other ranks to write or read the reason.
constexpr auto kFailurePatience = std::chrono::milliseconds(3000);

// A failure as written in the store.
struct WrittenFailure {
  std::string reason;  // "rank 3: ...", one line
  int writer;          // the rank that wrote it, not necessarily the one to blame
  // Exit code of an error that all ranks have alike (base/process/common_error.h): whichever rank writes it, rank 0
  // prints it, and every rank ends with this code. 0: the failure of one rank.
  int common_code = 0;
  // The further lines of such an error: rank 0 may print it before it has come to the error itself. Begins with a line
  // break; empty if there are none.
  std::string further_lines = {};

  bool is_common() const { return common_code != 0; }
};

// The first failure that this process has read, shared by its threads. The rank that serves the store leaves once all
// others have read the reason; a thread that then finds the store gone asks here and does not blame that rank.
class HeardFailure {
 public:
  void keep(const WrittenFailure& failure);
  std::optional<WrittenFailure> get() const;

 private:
  mutable std::mutex mutex_;
  std::optional<WrittenFailure> failure_;
};

// A job's store as one rank sees it, with what it knows of the others. Not thread-safe: each thread has a copy, and
// the copies share `heard`.
struct FailureBoard {
  c10::intrusive_ptr<c10d::Store> store;
  int rank;
  int store_rank;                      // its process serves the store; -1 if a launcher does
  std::vector<RankProcess> processes;  // one per rank
  std::shared_ptr<HeardFailure> heard = std::make_shared<HeardFailure>();
};

class FailureWatch {
 public:
  // `on_failure` runs on the watch's own thread, at most once, with the reason in one line; it should end the
  // process. It is not called for a failure that this rank reported of itself. `board.store` must be a separate
  // connection (clone_store). `on_look` runs on the same thread before every poll, with that board; it may throw the
  // store's errors.
  FailureWatch(FailureBoard board, std::function<void(const std::string& reason)> on_failure,
               std::function<void(FailureBoard& board)> on_look = nullptr);
  ~FailureWatch();
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;

  void stop();

 private:
  void run();
  FailureBoard board_;
  std::function<void(const std::string&)> on_failure_;
  std::function<void(FailureBoard&)> on_look_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

// Writes `rank`'s reason ("rank 3: <its first line>"); the first rank to fail wins. Returns the rank that had already
// written the same reason of itself, and so prints it for all; nullopt otherwise. Never throws: the store may be
// gone.
std::optional<int> report_failure(FailureBoard& board, int rank, const std::string& reason) noexcept;

// Writes an error that all ranks have alike, as one of rank 0, which prints it. Returns true if it is the first
// failure, or another rank has written the same before; false if not, or if the store is gone. Never throws.
bool report_common_failure(FailureBoard& board, const std::string& reason, int exit_code) noexcept;

// Waits on the other ranks until rank 0 has read such an error, and so prints it, for at most `patience`. Returns
// false if it has not read it.
bool wait_for_printer(FailureBoard& board, std::chrono::milliseconds patience = kFailurePatience) noexcept;

// Returns the first failure that any rank wrote, and marks it as read; later calls return it without asking the
// store. Returns nullopt if no rank failed. Throws the store's errors.
std::optional<WrittenFailure> read_failure(FailureBoard& board);

// Returns the reason that a rank wrote. Otherwise looks for another rank whose process has ended or, on another
// machine, fallen silent, and reports it to all ranks. Returns nullopt after `patience`, once `is_enough`, called at
// every poll, returns true, or if a rank of this machine stays suspended. Throws the store's errors.
std::optional<std::string> find_failure(FailureBoard& board, std::chrono::milliseconds patience,
                                        const std::function<bool()>& is_enough = nullptr);

// Finds another rank of this machine that is suspended, and reports it to all ranks, unless it serves the store.
// Returns the reason; nullopt if no rank is suspended. Throws the store's errors.
std::optional<std::string> find_stopped_rank(FailureBoard& board);

// Returns why the store does not answer: the failure that this process has read before; otherwise, if another rank of
// this machine serves the store, whether its process has ended.
std::string why_store_is_gone(const FailureBoard& board) noexcept;

// Waits before this process ends, for at most `patience`. The rank that serves the store waits until all other live
// ranks have read the reason. Every rank waits until the rank to blame has ended, so that a launcher takes that
// rank's exit code.
void leave_in_order(FailureBoard& board, const std::string& reason,
                    std::chrono::milliseconds patience = kFailurePatience) noexcept;

}  // namespace titan::dist
