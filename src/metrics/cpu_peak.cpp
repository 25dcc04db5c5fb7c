#include "metrics/cpu_peak.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <functional>

namespace titan::metrics {
namespace {

constexpr std::int64_t kSize = 1024, kSmallSize = 256;
constexpr double kBudget = 0.05;

double seconds_of(const std::function<at::Tensor()>& product) {
  const auto start = std::chrono::steady_clock::now();
  product();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double best_flops(std::int64_t size, const std::function<at::Tensor()>& product, double budget_s) {
  product();  // the first call compiles the kernel
  double best_s = seconds_of(product), spent_s = best_s;
  do {
    const double seconds = seconds_of(product);
    best_s = std::min(best_s, seconds);
    spent_s += seconds;
  } while (spent_s < budget_s);
  return 2.0 * static_cast<double>(size * size * size) / best_s;
}

// Large products come nearer to the peak, but take seconds in a type that this processor has no instructions for.
at::Tensor factor(c10::ScalarType dtype) {
  const at::Tensor small = at::ones({kSmallSize, kSmallSize}, at::TensorOptions().dtype(dtype));
  at::mm(small, small);
  constexpr double kMoreWork = static_cast<double>(kSize * kSize * kSize) / (kSmallSize * kSmallSize * kSmallSize);
  if (seconds_of([&] { return at::mm(small, small); }) * kMoreWork > 10 * kBudget) return small;
  return at::ones({kSize, kSize}, small.options());
}

}  // namespace

double measure_cpu_peak_flops(c10::ScalarType dtype) {
  const c10::InferenceMode no_autograd;
  const at::Tensor a = factor(dtype);
  // What the processor has no instructions for, libraries may compute in float32, in some operators but not in others.
  if (dtype != c10::kFloat && a.size(0) == kSmallSize) return measure_cpu_peak_flops(c10::kFloat);
  const auto plain = [&] { return at::mm(a, a); };
  if (dtype != c10::kFloat || !at::globalContext().hasMKLDNN()) return best_flops(a.size(0), plain, kBudget);
  const at::Tensor packed = a.to_mkldnn();
  return std::max(best_flops(a.size(0), plain, kBudget / 2),
                  best_flops(
                      a.size(0), [&] { return at::mkldnn_linear(packed, packed); }, kBudget / 2));
}

}  // namespace titan::metrics
