// Which of the kernels' builds this processor runs.
#pragma once

namespace titan::kernels {

enum class Isa { kPlain, kAvx2, kAvx512 };  // any processor; AVX2 with FMA; AVX-512 F and DQ

Isa best_isa();

// Whether it is kAvx512, and multiplies in bfloat16 as well (AVX512-BF16).
bool has_bfloat16_products();

// Whether has_bfloat16_products(), it has tiles of them (AMX) and AVX-512 BW, and the system lets this process use tiles.
// The first call asks it to, for all threads, for good.
bool has_bfloat16_tiles();

template <typename Kernels>
const Kernels& best_of(const Kernels& plain, const Kernels& avx2, const Kernels& avx512) {
  switch (best_isa()) {
    case Isa::kAvx512:
      return avx512;
    case Isa::kAvx2:
      return avx2;
    default:
      return plain;
  }
}

}  // namespace titan::kernels

// The build of `name` for best_isa(): that of the namespaces plain, avx2 and avx512, of which other processors than
// x86-64 have the first alone.
#if defined(__x86_64__)
#define TITAN_BEST_KERNELS(name) best_of(plain::name, avx2::name, avx512::name)
#else
#define TITAN_BEST_KERNELS(name) plain::name
#endif
