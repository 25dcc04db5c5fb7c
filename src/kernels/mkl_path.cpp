#include "kernels/mkl_path.h"

#include <dlfcn.h>

#include <atomic>

#include "kernels/cpu/isa.h"

namespace titan::kernels {
namespace {

#if defined(__x86_64__)
bool is_intel() { return __builtin_cpu_is("intel"); }
#else
bool is_intel() { return false; }
#endif

// The answer of MKL's vector functions on processors that are not Intel's: the code for any processor.
constexpr int kAnyProcessor = 0;

std::atomic<MklPath> chosen = MklPath::kByInstructions;

bool is_taken_for_intel() { return chosen == MklPath::kByInstructions && !is_intel() && best_isa() != Isa::kPlain; }

}  // namespace

void choose_mkl_path(MklPath path) { chosen = path; }

bool mkl_takes_fast_code() { return is_intel() || is_taken_for_intel(); }

}  // namespace titan::kernels

// MKL's code in libtorch_cpu calls these functions instead of its own: a program's symbols come first.
extern "C" {

__attribute__((visibility("default"))) int mkl_serv_intel_cpu_true() {
  return titan::kernels::mkl_takes_fast_code() ? 1 : 0;
}

__attribute__((visibility("default"))) int mkl_vml_serv_cpu_detect() {
  if (titan::kernels::is_taken_for_intel()) return titan::kernels::kAnyProcessor;
  static const auto own = reinterpret_cast<int (*)()>(dlsym(RTLD_NEXT, "mkl_vml_serv_cpu_detect"));
  return own ? own() : titan::kernels::kAnyProcessor;
}

}  // extern "C"
