#include "kernels/cpu/isa.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace titan::kernels {
namespace {

#if defined(__x86_64__) && defined(__linux__)
// A thread that uses tiles has 8 KiB more to save, for which Linux wants to be asked (5.16 and later).
bool may_use_tiles() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  const bool has_tiles = (edx & (1U << 24)) != 0, multiplies_bfloat16 = (edx & (1U << 22)) != 0;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM; the part of the state
  return has_tiles && multiplies_bfloat16 && __builtin_cpu_supports("avx512bw") &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#else
bool may_use_tiles() { return false; }
#endif

}  // namespace

Isa best_isa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) return Isa::kAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::kAvx2;
#endif
  return Isa::kPlain;
}

bool has_bfloat16_tiles() {
  static const bool has = has_bfloat16_products() && may_use_tiles();
  return has;
}

bool has_bfloat16_products() {
#if defined(__x86_64__)
  return best_isa() == Isa::kAvx512 && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

}  // namespace titan::kernels
