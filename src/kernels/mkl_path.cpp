#include "kernels/mkl_path.h"

#include "base/env.h"

namespace titan::kernels {
namespace {

#if defined(__x86_64__)
bool is_intel() { return __builtin_cpu_is("intel"); }
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#else
bool is_intel() { return false; }
bool has_avx2() { return false; }
#endif

}  // namespace

bool mkl_takes_fast_path() {
  static const bool answer = is_intel() || (has_avx2() && get_env("TITAN_MKL_AS_ON_INTEL") == "1");
  return answer;
}

}  // namespace titan::kernels

// Found by MKL's code in libtorch_cpu before its own: a program's symbols come first.
extern "C" __attribute__((visibility("default"))) int mkl_serv_intel_cpu_true() {
  return titan::kernels::mkl_takes_fast_path() ? 1 : 0;
}
