// The state of a trial, as saved in sweep.json.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "lab/sweep/plan/sweep_spec.h"

namespace titan::sweep {

enum class State {
  kPending,  // to be started, or resumed if it has a checkpoint
  kRunning,
  kPaused,  // trained to a rung of successive halving; may be promoted
  kDone,    // trained to the end
  kFailed,
};

const char* to_string(State state);

struct Trial {
  std::string name;
  std::vector<Assignment> values;
  State state = State::kPending;
  std::int64_t starts = 0;    // number of processes started for it
  std::int64_t failures = 0;  // number of these that failed
  double seconds = 0;         // their total running time
  std::int64_t steps = 0;     // steps trained; while it runs, the last one in its metrics
  double objective = std::numeric_limits<double>::quiet_NaN();
  std::int64_t objective_step = 0;      // step of the last row that the objective was taken from; 0: unknown
  std::vector<double> rung_objectives;  // at the end of each finished rung; without rungs one entry when done
  std::string error;                    // reason of the failure, one line

  bool operator==(const Trial&) const = default;
};

// True if `a` is the better objective. NaN ranks last.
inline bool is_better(double a, double b, bool maximize) {
  if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
  return maximize ? a > b : a < b;
}

}  // namespace titan::sweep
