// Counts what this program allocates: CPU tensors, and everything from operator new.
#pragma once

#include <cstdint>

namespace titan::test {

// Counts while it exists. Only one may exist at a time.
class CountedMemory {
 public:
  CountedMemory();
  ~CountedMemory();
  CountedMemory(const CountedMemory&) = delete;
  CountedMemory& operator=(const CountedMemory&) = delete;

  // Peak bytes since its construction, minus the bytes at its construction.
  std::int64_t peak_bytes() const;
};

}  // namespace titan::test
