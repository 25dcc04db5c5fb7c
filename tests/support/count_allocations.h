// Counts the calls of operator new and delete. A test that includes this links count_allocations.cpp, which replaces
// the operators in the whole program.
#pragma once

#include <cstdint>

namespace titan::test {

struct Allocations {
  std::int64_t made = 0;
  std::int64_t freed = 0;

  // Returns the allocations made after `earlier`.
  Allocations since(const Allocations& earlier) const { return {made - earlier.made, freed - earlier.freed}; }
};

// Returns the allocations of all threads since the program started.
Allocations allocations();

}  // namespace titan::test
