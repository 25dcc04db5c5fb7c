#pragma once

#include <cstdint>

namespace titan::kernels {

// bfloat16 where torch's type cannot be used.
struct BFloat16Bits {
  std::uint16_t bits;
};

}  // namespace titan::kernels
