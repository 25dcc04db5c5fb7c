// What code asks of operator new. A test that includes this links count_allocations.cpp, which takes the operators' place
// in the whole program.
#pragma once

#include <cstdint>

namespace titan::test {

struct Allocations {
  std::int64_t made = 0;
  std::int64_t freed = 0;

  // Those that `earlier` did not have yet.
  Allocations since(const Allocations& earlier) const { return {made - earlier.made, freed - earlier.freed}; }
};

// By all threads, since the program started.
Allocations allocations();

}  // namespace titan::test
