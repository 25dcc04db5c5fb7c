// Chooses the build of each kernel that this process runs, by the processor's instructions.
#pragma once

namespace titan::kernels {

// Instruction sets, each including those before it: any processor's; AVX2 with FMA and F16C; AVX-512 F and DQ; bfloat16
// multiply-adds (AVX512-BF16); their tiles (AMX) and whatever else the processor has.
enum class Isa { kPlain, kAvx2, kAvx512, kAvx512Bfloat16, kAll };

// Limits the process to `most`: this program's kernels, ATen, MKL and oneDNN. The libraries each read an environment
// variable when they are first used: call this before that, once. Throws InternalError if ATen has chosen already.
void limit_instructions(Isa most);

// Returns the best set that this processor has and limit_instructions() allows, at most kAvx512Bfloat16.
Isa best_isa();

// True if this process may use bfloat16 multiply-adds in vectors (AVX512-BF16).
bool has_bfloat16_products();

// True if has_bfloat16_products(), the processor has tiles (AMX) and AVX-512 BW, and the system lets this process use
// tiles. The first call requests that permission, for all threads, permanently.
bool has_bfloat16_tiles();

// True if the processor multiplies in float16 (AVX512-FP16) and is not limited. Only oneDNN uses this.
bool has_float16_products();

template <typename Kernels>
const Kernels& best_of(const Kernels& plain, const Kernels& avx2, const Kernels& avx512) {
  const Isa best = best_isa();
  return best >= Isa::kAvx512 ? avx512 : best == Isa::kAvx2 ? avx2 : plain;
}

}  // namespace titan::kernels

// The build of `name` for best_isa(), from the namespaces plain, avx2 and avx512. Processors other than x86-64 have
// only plain.
#if defined(__x86_64__)
#define TITAN_BEST_KERNELS(name) best_of(plain::name, avx2::name, avx512::name)
#else
#define TITAN_BEST_KERNELS(name) plain::name
#endif
