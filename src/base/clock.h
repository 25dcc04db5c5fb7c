// Where what waits or measures takes the time from: a test moves the hands itself.
#pragma once

#include <chrono>
#include <functional>

namespace titan {

using TimePoint = std::chrono::steady_clock::time_point;

// The time now: std::chrono::steady_clock::now, but in tests.
using Clock = std::function<TimePoint()>;

inline double seconds_between(TimePoint begin, TimePoint end) {
  return std::chrono::duration<double>(end - begin).count();
}

// Seconds since 1970, for what people read: it may jump.
inline double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace titan
