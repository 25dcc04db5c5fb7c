// Which trial runs next: the state machine of a sweep, without processes and files.
//
// Without rungs every trial runs once, to its end. With rungs (successive halving, asynchronous) a trial runs to the
// first rung and pauses. Whenever there is room, the first of these that applies says what runs:
//   1. a trial that was interrupted resumes, to the rung that it was on its way to;
//   2. from the highest rung down: of the n trials that finished a rung (failed ones count, as the worst), the best
//      n / reduction_factor, rounded down, may go on; the best of them that has not done so is promoted;
//   3. a fresh trial starts;
//   4. when nothing runs and no trial has reached the end, the best of the highest rung is promoted, so that a sweep
//      always ends with a whole run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/sweep/plan/trial.h"

namespace titan::sweep {

struct Rules {
  std::vector<std::int64_t> rungs;  // steps, rising; empty: no successive halving
  std::int64_t reduction_factor = 3;
  bool maximize = false;
  std::int64_t retries = 0;  // further starts of a trial that failed
};

class Schedule {
 public:
  Schedule(std::vector<Trial> trials, Rules rules) : trials_(std::move(trials)), rules_(std::move(rules)) {}

  // The trial to start, or nothing when none may start now. The same until something changes.
  std::optional<std::size_t> next() const;

  // The rung that a start of the trial trains to; 0 without rungs.
  std::size_t target_rung(std::size_t trial) const { return trials_[trial].rung_objectives.size(); }

  void start(std::size_t trial);
  // It trained to its target.
  void finish(std::size_t trial, double objective);
  // It ended before its target. It is tried again if retries are left. `may_retry` is false where another try would
  // end alike.
  void fail(std::size_t trial, const std::string& error, bool may_retry = true);
  // It saved a checkpoint on a signal, or its process died with this one: it resumes later; this does not count as a failure.
  void interrupt(std::size_t trial);
  // Failed trials become pending again, with all their retries.
  void retry_failed();

  bool any(State state) const;
  const std::vector<Trial>& trials() const { return trials_; }
  Trial& trial(std::size_t index) { return trials_[index]; }
  const Rules& rules() const { return rules_; }

 private:
  std::optional<std::size_t> find_promotion(std::size_t rung) const;
  std::optional<std::size_t> best_paused() const;

  std::vector<Trial> trials_;
  Rules rules_;
};

}  // namespace titan::sweep
