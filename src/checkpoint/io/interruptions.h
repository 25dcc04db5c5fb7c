// Repeats system calls that a signal interrupted, but not for ever.
#pragma once

#include <cerrno>

namespace titan::checkpoint {

// Counts how often a signal interrupted a call (EINTR) without any progress.
class Interruptions {
 public:
  // True if the call that has just failed was interrupted and may be repeated: not after a thousand times in a row,
  // which no signal does, but a broken file system can.
  bool may_repeat() { return errno == EINTR && ++count_ < kMost; }
  // Call after progress.
  void reset() { count_ = 0; }

 private:
  static constexpr int kMost = 1000;
  int count_ = 0;
};

}  // namespace titan::checkpoint
