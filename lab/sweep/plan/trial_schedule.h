// Chooses which trial runs next: the state machine of a sweep, without processes and files.
//
// Without rungs every trial runs once, to its end. With rungs (successive halving, asynchronous) a
// trial runs to the first rung and pauses. Whenever there is room, the first rule that applies decides:
//   1. an interrupted trial resumes, to the rung that it was training to;
//   2. from the highest rung down: of the n trials that finished a rung (failed ones count, as the worst), the best
//      n / reduction_factor, rounded down, may continue; the best of them that is still paused there is promoted;
//   3. a fresh trial starts;
//   4. when nothing runs and no trial has reached the end, the best of the highest rung is promoted, so that a sweep
//      always ends with a full run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/sweep/plan/trial.h"

namespace titan::sweep {

struct Rules {
  std::vector<std::int64_t> rungs;  // steps, ascending; empty: no successive halving
  std::int64_t reduction_factor = 3;
  bool maximize = false;
  std::int64_t retries = 0;  // additional starts of a failed trial
};

class Schedule {
 public:
  Schedule(std::vector<Trial> trials, Rules rules) : trials_(std::move(trials)), rules_(std::move(rules)) {}

  // Returns the trial to start, or nullopt if none may start now. Repeated calls return the same
  // until something changes.
  std::optional<std::size_t> next() const;

  // Returns the rung that the trial's next start trains to; 0 without rungs.
  std::size_t target_rung(std::size_t trial) const { return trials_[trial].rung_objectives.size(); }

  void start(std::size_t trial);
  // Call when the trial has trained to its target.
  void finish(std::size_t trial, double objective);
  // Call when the trial ended before its target. It is tried again if retries are left. `may_retry`
  // is false if another try would end the same way.
  void fail(std::size_t trial, const std::string& error, bool may_retry = true);
  // Call when it saved on a signal, or its process died with this one: it resumes later, and this
  // does not count as a failure.
  void interrupt(std::size_t trial);
  // Makes failed trials pending again, with all their retries.
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
