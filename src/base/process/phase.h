// Tracks what the training thread is doing. One mark in the code serves the time accounting, the
// hang watchdog and the named ranges of a trace.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/clock.h"

namespace titan {

enum class Phase : int {
  kStart,       // from process start to the first step, except the phases below
  kLoad,        // reads a checkpoint
  kData,        // waits for batches
  kStep,        // forward, backward and the gradient norm
  kOptimizer,   // updates the weights
  kDevice,      // waits until a GPU has finished the steps that the host queued
  kCheckpoint,  // saves, or waits for a save that runs in the background
  kValidation,
  kLog,   // reduces values over ranks and logs them
  kIdle,  // anything else between and after steps
};
inline constexpr std::size_t kNumPhases = 10;

// "start", "load", "data", ...: one word in lower case.
std::string_view name_of(Phase phase);

// Nested phases of one thread; time counts for the innermost.
class PhaseLog {
 public:
  explicit PhaseLog(Clock now = std::chrono::steady_clock::now);

  // Call only from the training thread. enter() returns the phase to return to.
  Phase enter(Phase phase);
  // Returns the seconds spent in each phase since construction, including the current one so far.
  std::array<double, kNumPhases> seconds() const;
  // Sets the current step, 1-based; 0 before the first.
  void set_step(std::int64_t step) { step_.store(step, std::memory_order_relaxed); }

  // Callable from any thread.
  Phase current() const { return current_.load(std::memory_order_relaxed); }
  TimePoint since() const { return since_.load(std::memory_order_relaxed); }  // when the current one was entered
  double seconds_in_current() const;
  std::int64_t step() const { return step_.load(std::memory_order_relaxed); }

 private:
  Clock now_;
  std::array<double, kNumPhases> seconds_{};
  std::atomic<Phase> current_ = Phase::kStart;
  std::atomic<TimePoint> since_;
  std::atomic<std::int64_t> step_ = 0;
};

// Returns the log of this process's training thread.
PhaseLog& phase_log();

// Interface that is called for every phase that begins or ends, on the training thread; for a
// profiler. Null: no listener. A listener must stay alive until it is replaced.
class PhaseListener {
 public:
  virtual ~PhaseListener() = default;
  virtual void on_enter(Phase phase) = 0;
  virtual void on_leave(Phase phase) = 0;
};
void set_phase_listener(PhaseListener* listener);

// The process is in `phase` while this lives.
class PhaseScope {
 public:
  explicit PhaseScope(Phase phase);
  ~PhaseScope();
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  Phase phase_;
  Phase before_;
};

}  // namespace titan
