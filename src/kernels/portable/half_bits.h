// The two types of 16 bits where torch's types cannot be used.
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
