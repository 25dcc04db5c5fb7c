// Which of the kernels' builds this processor runs.
#pragma once

namespace titan::kernels {

enum class Isa { kPlain, kAvx2, kAvx512 };  // any processor; AVX2 with FMA; AVX-512 F and DQ

Isa best_isa();

// Whether it is kAvx512, and multiplies in bfloat16 as well (AVX512-BF16).
bool has_bfloat16_products();

}  // namespace titan::kernels
