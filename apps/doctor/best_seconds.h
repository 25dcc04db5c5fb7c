// Timing for doctor's measurements.
#pragma once

#include <ATen/ops/full.h>
#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>

#include "base/clock.h"
#include "distributed/process_group.h"

namespace titan::doctor {

// Returns the shortest time of five calls of `run`, in seconds, including the device's work. An untimed call before
// them pays for lazy initialization.
template <typename Run>
double best_seconds(c10::Device device, Run&& run) {
  constexpr int kRuns = 5;
  double best = 0;
  for (int i = 0; i <= kRuns; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
    const double seconds = seconds_between(begin, std::chrono::steady_clock::now());
    if (i == 1 || (i > 1 && seconds < best)) best = seconds;
  }
  return best;
}

// Returns the longest time that any rank measured. Collective.
inline double longest_of_ranks(dist::ProcessGroup& group, double seconds) {
  auto longest = at::full({1}, seconds, at::kDouble);
  group.all_reduce(longest, dist::ReduceOp::kMax).wait();
  return longest.item<double>();
}

}  // namespace titan::doctor
