// Launches each CUDA kernel once for each dtype, on the host. Needs no library: it is compiled with a sanitizer, which
// reports what it finds. The numbers do not matter here (tests/unit/cuda/host_kernels_test.cpp compares them).
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/cuda/fill_uniform.h"
#include "kernels/cuda/launch_fused_rows.h"

namespace titan::cuda {
namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "all_kernels: %s failed with error %d\n", what, error);
  std::exit(1);
}

// Packs of ones, so that every access that kernels may make is within them.
template <typename T>
class Buffer {
 public:
  explicit Buffer(std::int64_t count) : packs_(static_cast<std::size_t>(count / device::Pack<T>::kSize)) {
    for (auto& pack : packs_)
      for (T& value : pack.values) value = device::rounded<T>(1);
  }
  operator T*() { return packs_.data()->values; }

 private:
  std::vector<device::Pack<T>> packs_;
};

// More packs of a row than lanes, rows than teams, and teams than blocks that run at once.
template <typename T>
void launch_norms() {
  constexpr std::int64_t kRows = 7, kDim = 4096 + 64, kTeams = 3;
  Buffer<T> x(kRows * kDim), delta(kRows * kDim), weight(kDim), sum(kRows * kDim), out(kRows * kDim);
  Buffer<T> out_grad(kRows * kDim), x_grad(kRows * kDim), weight_grad(kDim);
  Buffer<float> rrms(8), columns(kTeams * kDim);
  for (const bool with_sum : {false, true}) {
    T* const more = with_sum ? static_cast<T*>(delta) : nullptr;
    T* const to = with_sum ? static_cast<T*>(sum) : nullptr;
    check(launch_rms_norm<T>(kRows, kDim, 1e-5F, x, more, weight, to, out, rrms, nullptr), "rms_norm");
    check(launch_rms_norm_backward<T>(kRows, kDim, kTeams, out_grad, more, x, weight, rrms, x_grad, weight_grad,
                                      columns, nullptr),
          "rms_norm_backward");
  }
}

template <typename T>
void launch_elementwise() {
  constexpr std::int64_t kCount = 3 * 2048 + 8;
  constexpr device::Rotation kShape{2, 5, 3, 32, 5 * 160, 160, 48};
  Buffer<T> x(2 * 5 * 160), rotated(2 * 5 * 3 * 32), gate(kCount), up(kCount), out(kCount), gate_grad(kCount),
      up_grad(kCount);
  Buffer<float> factors(5 * 32);
  for (const bool conjugate : {false, true}) {
    check(launch_rotate<T>(kShape, x, factors, conjugate, rotated, nullptr), "rotate");
    check(launch_rotate_halves<T>(kShape, x, factors, conjugate, rotated, nullptr), "rotate_halves");
  }
  check(launch_swiglu<T>(kCount, gate, up, out, nullptr), "swiglu");
  check(launch_swiglu_backward<T>(kCount, out, gate, up, gate_grad, up_grad, nullptr), "swiglu_backward");
}

}  // namespace
}  // namespace titan::cuda

int main() {
  using namespace titan;
  cuda::launch_norms<float>();
  cuda::launch_norms<device::BFloat16Bits>();
  cuda::launch_elementwise<float>();
  cuda::launch_elementwise<device::BFloat16Bits>();
  std::vector<float> drawn(1021);
  cuda::check(cuda::launch_fill_uniform(drawn.data(), {42, 7, 3, 1021}, nullptr), "fill_uniform");
}
