// What is known of a trial. sweep.json keeps it.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "lab/sweep/plan/sweep_spec.h"

namespace titan::sweep {

enum class State {
  kPending,  // to be started, or started again where it has a checkpoint
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
  std::int64_t starts = 0;    // processes that were started for it
  std::int64_t failures = 0;  // of them, how many failed
  double seconds = 0;         // that they ran, all together
  std::int64_t steps = 0;     // that it was trained; while it runs, the last one in its metrics
  double objective = std::numeric_limits<double>::quiet_NaN();
  std::int64_t objective_step = 0;      // of the last row that the objective was taken from; 0: not known
  std::vector<double> rung_objectives;  // at the end of each rung that it finished; without rungs one when done
  std::string error;                    // why it failed, one line

  bool operator==(const Trial&) const = default;
};

// True when `a` is the better objective. NaN ranks last.
inline bool is_better(double a, double b, bool maximize) {
  if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
  return maximize ? a > b : a < b;
}

}  // namespace titan::sweep
