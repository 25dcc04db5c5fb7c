// The two 16-bit floating-point types, for code that cannot use torch's types.
#pragma once

#include <cstdint>

namespace titan::kernels {

struct BFloat16Bits {
  std::uint16_t bits;
};

struct Float16Bits {
  std::uint16_t bits;
};

}  // namespace titan::kernels
