// One clear reason for every rank: the first rank to fail writes why to the job's store before it unwinds, and a thread
// on every other rank, which looks there a few times a second, ends its process with that reason. The same thread looks
// whether the other ranks of this machine still live, and counts up a key of its own, by which ranks of other machines
// can tell that this one was killed. Without it a rank that waits for data, or writes a checkpoint, would learn of a
// lost peer only at the next collective's time limit.
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

// How long a rank that ends waits for what others may still have to say or to hear.
constexpr auto kFailurePatience = std::chrono::milliseconds(3000);

// A failure as it stands in the store.
struct WrittenFailure {
  std::string reason;  // "rank 3: ...", one line
  int writer;          // the rank that wrote it, which need not be the one to blame
};

// The first failure that this process has heard of, for all of its threads. The rank that serves the store leaves once all
// others have heard why: whoever then finds it gone, and asks here, does not take it for the one to blame.
class HeardFailure {
 public:
  void keep(const WrittenFailure& failure);
  std::optional<WrittenFailure> get() const;

 private:
  mutable std::mutex mutex_;
  std::optional<WrittenFailure> failure_;
};

// A job's store as one rank sees it, with what it knows of the others. Not for two threads at once: each has a copy, and
// they have in common what was heard.
struct FailureBoard {
  c10::intrusive_ptr<c10d::Store> store;
  int rank;
  int store_rank;                      // whose process takes the store away with it; -1: a launcher serves it
  std::vector<RankProcess> processes;  // of all ranks
  std::shared_ptr<HeardFailure> heard = std::make_shared<HeardFailure>();
};

class FailureWatch {
 public:
  // `on_failure` runs on the watch's own thread, at most once, with the reason in one line; it is expected to end the
  // process. It is not called for what this rank wrote of itself. `board.store` must be a connection of its own
  // (clone_store). `on_look` runs on the same thread at every look, before it, with that board; it may throw what the
  // store throws.
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

// Writes the reason of `rank` ("rank 3: <its first line>"); the first rank to fail wins. Returns the rank that had
// written the same words of itself before, which says them for all; nothing where it is this one. Never throws: the
// store may be gone already.
std::optional<int> report_failure(FailureBoard& board, int rank, const std::string& reason) noexcept;

// The first failure that was written, by whichever rank; it counts as heard, and is given again without asking the store.
// Throws what the store throws.
std::optional<WrittenFailure> read_failure(FailureBoard& board);

// The reason that a rank wrote; else the rank whose process has ended or, on another machine, fallen silent, written
// for the others. Never this rank. Nothing after `patience`, or as soon as `is_enough`, which is asked at every look, says
// so. Throws what the store throws.
std::optional<std::string> find_failure(FailureBoard& board, std::chrono::milliseconds patience,
                                        const std::function<bool()>& is_enough = nullptr);

// Another rank of this machine that was stopped, written for the others. Throws what the store throws.
std::optional<std::string> find_stopped_rank(FailureBoard& board);

// The store does not answer. What this process had heard before is the reason; else, where a rank of this machine serves
// it, the system says whether that one is gone.
std::string why_store_is_gone(const FailureBoard& board) noexcept;

// Before this process ends: the rank that serves the store stays until all others that live have read the reason; the
// others stay until the rank that failed has ended, so that a launcher takes its exit code and not theirs. For
// `patience` at most.
void leave_in_order(FailureBoard& board, const std::string& reason,
                    std::chrono::milliseconds patience = kFailurePatience) noexcept;

}  // namespace titan::dist
