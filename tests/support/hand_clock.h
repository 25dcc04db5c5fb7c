// A clock that only the test moves.
#pragma once

#include <chrono>

#include "base/clock.h"

namespace titan::test {

// A clock that advance() moves. It must outlive its users.
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
