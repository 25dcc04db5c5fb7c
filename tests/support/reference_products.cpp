// libtitan_reference_products.so, preloaded into the program by tests: ends the process if a matmul reaches ATen's
// reference loops, which ATen uses if no library multiplies in a type on this processor. Matmuls that no library takes
// go through two dispatch stubs of ATen/native/CPUBlas.h, which are filled here before ATen first reads them. Batched
// matmuls of fewer than 400 multiplications per matrix have a loop of their own, which is not detected.
#define HAVE_AVX2_CPU_DEFINITION  // as torch was built: the stubs have a place for each capability
#define HAVE_AVX512_CPU_DEFINITION
#include <ATen/native/CPUBlas.h>
#include <unistd.h>

#include <cstdio>

namespace {

constexpr int kExitCode = 98;

[[noreturn]] void refuse(c10::ScalarType dtype) {
  std::fprintf(stderr, "a product in %s reached ATen's reference loops\n", c10::toString(dtype));
  ::_exit(kExitCode);
}

template <typename Stub, typename... Args>
void fill(void (*)(c10::ScalarType, Args...)) {
  const auto refuses = +[](c10::ScalarType dtype, Args...) { refuse(dtype); };
  Stub::DEFAULT = refuses;
  Stub::AVX2 = refuses;
  Stub::AVX512 = refuses;
}

[[maybe_unused]] const bool filled = [] {
  using namespace at::native::cpublas;
  fill<decltype(gemm_stub)>(gemm_fn{});
  fill<decltype(gemm_no_downcast_stub)>(gemm_no_downcast_fn{});
  return true;
}();

}  // namespace
