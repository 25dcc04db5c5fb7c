#include "kernels/cpu/isa.h"

#include <ATen/Version.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "base/error.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace titan::kernels {
namespace {

std::atomic<Isa> allowed = Isa::kAll;

#if defined(__x86_64__) && defined(__linux__)
struct Features {  // registers of CPUID's leaf 7
  unsigned ebx = 0, edx = 0;
};
Features read_features() {
  unsigned eax = 0, ecx = 0;
  Features features;
  if (__get_cpuid_count(7, 0, &eax, &features.ebx, &ecx, &features.edx) == 0) return {};
  return features;
}

// Tiles add 8 KiB to the state saved per thread; Linux 5.16 and later require a request for that.
bool may_use_tiles() {
  const unsigned edx = read_features().edx;
  const bool has_tiles = (edx & (1U << 24)) != 0, multiplies_bfloat16 = (edx & (1U << 22)) != 0;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM; XFEATURE_XTILEDATA
  return has_tiles && multiplies_bfloat16 && __builtin_cpu_supports("avx512bw") &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
bool multiplies_float16() { return (read_features().edx & (1U << 23)) != 0; }
#else
bool may_use_tiles() { return false; }
bool multiplies_float16() { return false; }
#endif

Isa of_processor() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
    return __builtin_cpu_supports("avx512bf16") ? Isa::kAvx512Bfloat16 : Isa::kAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
    return Isa::kAvx2;
#endif
  return Isa::kPlain;
}

}  // namespace

// Sets ATEN_CPU_CAPABILITY only if the processor has more than AVX2: ATen trusts whatever it reads. The other two
// variables are upper limits.
void limit_instructions(Isa most) {
  allowed = most;
  if (most >= Isa::kAll || most < Isa::kAvx2 || of_processor() == Isa::kPlain) return;
  const bool is_avx2 = most == Isa::kAvx2;
  const char* const of_onednn = is_avx2 ? "AVX2" : most == Isa::kAvx512 ? "AVX512_CORE" : "AVX512_CORE_BF16";
  setenv("ONEDNN_MAX_CPU_ISA", of_onednn, /*overwrite=*/1);
  setenv("MKL_ENABLE_INSTRUCTIONS", is_avx2 ? "AVX2" : "AVX512", 1);
  if (!is_avx2 || of_processor() == Isa::kAvx2) return;
  setenv("ATEN_CPU_CAPABILITY", "avx2", 1);
  TITAN_CHECK(at::get_cpu_capability() == "AVX2",
              "ATen had chosen " + at::get_cpu_capability() + " before instructions were limited to AVX2");
}

Isa best_isa() {
  static const Isa has = of_processor();
  return std::min(has, allowed.load(std::memory_order_relaxed));
}

bool has_bfloat16_products() { return best_isa() == Isa::kAvx512Bfloat16; }

bool has_bfloat16_tiles() {
  if (allowed < Isa::kAll) return false;
  static const bool has = has_bfloat16_products() && may_use_tiles();
  return has;
}

bool has_float16_products() {
  static const bool has = multiplies_float16();
  return has && allowed == Isa::kAll;
}

}  // namespace titan::kernels
