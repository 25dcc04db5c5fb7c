#include "base/process/phase.h"

#include <utility>

namespace titan {
namespace {

constexpr std::array<std::string_view, kNumPhases> kNames = {"start",  "load",       "data",       "step", "optimizer",
                                                             "device", "checkpoint", "validation", "log",  "idle"};

PhaseListener* g_listener = nullptr;  // used by the training thread only

}  // namespace

std::string_view name_of(Phase phase) { return kNames[static_cast<std::size_t>(phase)]; }

PhaseLog::PhaseLog(Clock now) : now_(std::move(now)), since_(now_()) {}

Phase PhaseLog::enter(Phase phase) {
  const TimePoint now = now_();
  const Phase before = current();
  seconds_[static_cast<std::size_t>(before)] += seconds_between(since_.load(std::memory_order_relaxed), now);
  since_.store(now, std::memory_order_relaxed);
  current_.store(phase, std::memory_order_relaxed);
  return before;
}

std::array<double, kNumPhases> PhaseLog::seconds() const {
  auto seconds = seconds_;
  seconds[static_cast<std::size_t>(current())] += seconds_in_current();
  return seconds;
}

double PhaseLog::seconds_in_current() const { return seconds_between(since_.load(std::memory_order_relaxed), now_()); }

PhaseLog& phase_log() {
  static auto* const log = new PhaseLog;  // never destroyed: threads that end late may still use it
  return *log;
}

void set_phase_listener(PhaseListener* listener) { g_listener = listener; }

PhaseScope::PhaseScope(Phase phase) : phase_(phase), before_(phase_log().enter(phase)) {
  if (g_listener) g_listener->on_enter(phase_);
}

PhaseScope::~PhaseScope() {
  if (g_listener) g_listener->on_leave(phase_);
  phase_log().enter(before_);
}

}  // namespace titan
