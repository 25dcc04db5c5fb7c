// A team of fused_lanes.h on the host: runs its lanes one after another.
#pragma once

#include "kernels/portable/fused_lanes.h"

namespace titan::device {

class HostTeam {
 public:
  template <typename Body>
  void each(const Body& body) const {
    for (int lane = 0; lane < kLanes; ++lane) body(lane);
  }

  void wait() const {}  // each() has ended for all lanes

  template <typename Body>
  float sum(const Body& body) const {
    float of_lane[kLanes], of_warp[kLanes / kWarp];
    for (int lane = 0; lane < kLanes; ++lane) of_lane[lane] = body(lane);
    for (int warp = 0; warp < kLanes / kWarp; ++warp) of_warp[warp] = folded<kWarp>(of_lane + warp * kWarp);
    return folded<kLanes / kWarp>(of_warp);
  }

 private:
  static constexpr int kWarp = 32;

  // Sums `kCount` values in the order of a butterfly over lanes (xor shuffle): the same pairs are added.
  template <int kCount>
  static float folded(float* values) {
    for (int apart = kCount / 2; apart > 0; apart /= 2)
      for (int i = 0; i < apart; ++i) values[i] += values[i + apart];
    return values[0];
  }
};

}  // namespace titan::device
