// Counts what this program allocates: tensors on the CPU, and all that comes from operator new.
#pragma once

#include <cstdint>

namespace titan::test {

// While it exists. One at a time.
class CountedMemory {
 public:
  CountedMemory();
  ~CountedMemory();
  CountedMemory(const CountedMemory&) = delete;
  CountedMemory& operator=(const CountedMemory&) = delete;

  // The most bytes there were at a time, beyond those at its start.
  std::int64_t peak_bytes() const;
};

}  // namespace titan::test
