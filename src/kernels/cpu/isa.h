// Chooses the build of each kernel that this process runs, by the processor's instructions.
#pragma once

namespace titan::kernels {

// Sets of instructions, each with those before it: any processor's; AVX2 with FMA and F16C; AVX-512 F and DQ; products
// in bfloat16 (AVX512-BF16); tiles of those (AMX) and whatever else the processor has.
enum class Isa { kPlain, kAvx2, kAvx512, kAvx512Bfloat16, kAll };

// Keeps this process from using more than `most`: this program's kernels, ATen, MKL and oneDNN, which read an
// environment variable each when they are first used. Call it before that, once. Throws InternalError if ATen has
// chosen already.
void limit_instructions(Isa most);

// The best set that this processor has and limit_instructions() allows, kAvx512Bfloat16 at most.
Isa best_isa();

// True if this process multiplies in bfloat16, in vectors of words.
bool has_bfloat16_products();

// True if has_bfloat16_products(), the processor has tiles of them (AMX) and AVX-512 BW, and the system lets this
// process use tiles. The first call asks it to, for all threads, for good.
bool has_bfloat16_tiles();

// True if the processor multiplies in float16 (AVX512-FP16), which of this process oneDNN alone does.
bool has_float16_products();

template <typename Kernels>
const Kernels& best_of(const Kernels& plain, const Kernels& avx2, const Kernels& avx512) {
  const Isa best = best_isa();
  return best >= Isa::kAvx512 ? avx512 : best == Isa::kAvx2 ? avx2 : plain;
}

}  // namespace titan::kernels

// The build of `name` for best_isa(): that of the namespaces plain, avx2 and avx512, of which other processors than
// x86-64 have the first alone.
#if defined(__x86_64__)
#define TITAN_BEST_KERNELS(name) best_of(plain::name, avx2::name, avx512::name)
#else
#define TITAN_BEST_KERNELS(name) plain::name
#endif
