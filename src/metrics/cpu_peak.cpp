#include "metrics/cpu_peak.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <functional>

namespace titan::metrics {
namespace {

constexpr std::int64_t kSize = 1024;
constexpr double kFlops = 2.0 * kSize * kSize * kSize;

double best_flops(const std::function<at::Tensor()>& product, double budget_s) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const auto begin = Clock::now();
  product();  // the first call compiles the kernel
  double best = 0.0;
  for (int i = 0; i < 2 || seconds_since(begin) < budget_s; ++i) {
    const auto start = Clock::now();
    product();
    best = std::max(best, kFlops / seconds_since(start));
  }
  return best;
}

}  // namespace

double measure_cpu_peak_flops(c10::ScalarType dtype) {
  const c10::InferenceMode no_autograd;
  const at::Tensor a = at::ones({kSize, kSize}, at::TensorOptions().dtype(dtype));
  if (dtype != c10::kFloat || !at::globalContext().hasMKLDNN()) return best_flops([&] { return at::mm(a, a); }, 0.05);
  const at::Tensor packed = a.to_mkldnn();
  return std::max(best_flops([&] { return at::mm(a, a); }, 0.025),
                  best_flops([&] { return at::mkldnn_linear(packed, packed); }, 0.025));
}

}  // namespace titan::metrics
