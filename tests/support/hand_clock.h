// A clock that only the test moves.
#pragma once

#include <chrono>

#include "base/clock.h"

namespace titan::test {

// Must outlive what it was given to.
class HandClock {
 public:
  Clock clock() const {
    return [this] { return now_; };
  }
  void advance(std::chrono::nanoseconds by) { now_ += by; }

 private:
  TimePoint now_{};
};

}  // namespace titan::test
