// What the thread that trains is busy with: for whoever adds up where the time went, watches for a rank that hangs, or
// names ranges in a trace. One mark in the code serves all of them.
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
  kStart,       // from the start of the process to the first step, but for what follows
  kLoad,        // reads a checkpoint
  kData,        // waits for batches
  kStep,        // forward and backward, and the norm of the gradients
  kOptimizer,   // updates the weights
  kDevice,      // waits until a GPU has done the steps that the host has queued
  kCheckpoint,  // saves, or waits for a save that runs in the background
  kValidation,
  kLog,   // reduces numbers over ranks, and writes them down
  kIdle,  // anything else between and after steps
};
inline constexpr std::size_t kNumPhases = 10;

// "start", "load", "data", ...: one word in lower case.
std::string_view name_of(Phase phase);

// The phases of one thread, one inside another; time counts for the innermost.
class PhaseLog {
 public:
  explicit PhaseLog(Clock now = std::chrono::steady_clock::now);

  // From the thread that trains only. enter() gives what to return to.
  Phase enter(Phase phase);
  // Of each phase since this was made, the one under way up to now.
  std::array<double, kNumPhases> seconds() const;
  // The step under way, 1-based; 0 before the first.
  void set_step(std::int64_t step) { step_.store(step, std::memory_order_relaxed); }

  // From any thread.
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

// Of the thread that trains in this process.
PhaseLog& phase_log();

// Hears of every phase that begins and ends, on the thread that trains; for a profiler. Null for nobody. A listener
// must outlive its turn.
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
