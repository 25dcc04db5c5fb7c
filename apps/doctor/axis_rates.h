// Measures the links along each axis of a run's mesh.
#pragma once

#include <string>

#include "apps/doctor/check.h"
#include "config/job_config.h"
#include "distributed/world.h"

namespace titan::doctor {

// Returns a check for each parallel axis of several ranks, named "axis tp": the ranks of the axis exchange what they
// exchange in training, as large as 64 MiB and as small as 4 KiB, in all of its groups at once. Collective, takes a
// second per axis. Returns the same result on all ranks. Throws ConfigError if the degrees do not multiply to the size
// of the world.
Checks check_axes(dist::World& world, const config::Parallelism& parallelism);

// Holds what the slowest rank of an axis measured.
struct AxisRate {
  double bytes = 0;          // that each rank receives
  double seconds = 0;        // until it has them
  double small_seconds = 0;  // until it has 4 KiB
};

// Judges an axis. `what`: the exchange, "all-gather between 4 ranks". `advice`: for a slow one.
Check check_axis(const std::string& name, const std::string& what, const AxisRate& rate, const std::string& advice);

}  // namespace titan::doctor
