#include "kernels/cpu/isa.h"

namespace titan::kernels {

Isa best_isa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) return Isa::kAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::kAvx2;
#endif
  return Isa::kPlain;
}

bool has_bfloat16_products() {
#if defined(__x86_64__)
  return best_isa() == Isa::kAvx512 && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

}  // namespace titan::kernels
