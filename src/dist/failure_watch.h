// One clear reason for every rank: a rank that fails writes why to the job's store, and a thread on every other rank,
// which looks there a few times a second, ends its process with that reason. The same thread counts up a key of its
// own, by which the others can tell that a rank was killed. Without it a rank that waits for data, or writes a
// checkpoint, would learn of a dead peer only at the next collective's time limit.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace titan::dist {

class FailureWatch {
 public:
  // `on_failure` runs on the watch's own thread, at most once, with the reason in one line; it is expected to end the
  // process. `store` must be a connection of its own (clone_store).
  FailureWatch(c10::intrusive_ptr<c10d::Store> store, int rank,
               std::function<void(const std::string& reason)> on_failure);
  ~FailureWatch();
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;

  void stop();

 private:
  void run();
  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  std::function<void(const std::string&)> on_failure_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

// Writes this rank's reason; the first rank to fail wins. Never throws: the store may be gone already.
void report_failure(c10d::Store& store, int rank, const std::string& reason) noexcept;

// Why a collective failed on this rank, in one line: "rank 3: <its reason>" when a rank wrote one; else the rank whose
// watch no longer beats, which has then been killed; else that the store went, and rank 0 or the launcher with it; else
// `symptom`. Takes up to a second. What it finds is written for the others. The watches must still run.
std::string diagnose_failure(c10d::Store& store, int world_size, const std::string& symptom) noexcept;

}  // namespace titan::dist
