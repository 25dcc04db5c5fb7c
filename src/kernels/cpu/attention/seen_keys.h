// Says which keys a query sees. For files that are compiled once per instruction set.
#pragma once

#include "kernels/cpu/attention/heads.h"
#include "kernels/cpu/simd/vector.h"

namespace titan::kernels::TITAN_ISA {
namespace {

// Returns how many keys, from the first on, query `query` sees. Each query sees all that the one before it sees.
inline Index seen_keys(const HeadsShape& shape, Index query) {
  const Index seen = query + 1 + shape.offset;
  return seen < shape.keys ? seen : shape.keys;
}

}  // namespace
}  // namespace titan::kernels::TITAN_ISA
