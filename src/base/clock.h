// Injectable clock; tests advance it by hand.
#pragma once

#include <chrono>
#include <functional>

namespace titan {

using TimePoint = std::chrono::steady_clock::time_point;

// Returns the current time: std::chrono::steady_clock::now, except in tests.
using Clock = std::function<TimePoint()>;

inline double seconds_between(TimePoint begin, TimePoint end) {
  return std::chrono::duration<double>(end - begin).count();
}

// Returns the seconds since 1970, for display: the system clock may jump.
inline double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace titan
