#include "metrics/cpu_peak.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <functional>

#include "kernels/memory/host_arena.h"

namespace titan::metrics {
namespace {

using Product = std::function<at::Tensor()>;

constexpr std::int64_t kSize = 1024, kSmallSize = 256;
constexpr double kBudget = 0.05;
constexpr int kTries = 3;

double flops_of_product(std::int64_t size) { return 2.0 * static_cast<double>(size * size * size); }

class Stopwatch {
 public:
  explicit Stopwatch(const Clock& clock) : clock_(clock) {}

  double seconds_of(const Product& product) const {
    const auto start = clock_();
    product();
    return seconds_between(start, clock_());
  }

  double best_flops(std::int64_t size, const Product& product, double budget_s) const {
    product();  // the first call compiles the kernel
    double best_s = seconds_of(product), spent_s = best_s;
    do {
      const double seconds = seconds_of(product);
      best_s = std::min(best_s, seconds);
      spent_s += seconds;
    } while (spent_s < budget_s);
    return flops_of_product(size) / best_s;
  }

  // True if the small matmul predicts that a large one would take too long. Every try must agree, because a rank that
  // was not scheduled for a moment is not slow.
  bool is_slow(const Product& small) const {
    const double more_work = flops_of_product(kSize) / flops_of_product(kSmallSize);
    for (int i = 0; i < kTries; ++i)
      if (seconds_of(small) * more_work <= 10 * kBudget) return false;
    return true;
  }

 private:
  const Clock& clock_;
};

// Returns the factor to measure with. Large matmuls come closer to the peak, but take seconds in a type for which this
// processor has no instructions.
at::Tensor factor(c10::ScalarType dtype, const Stopwatch& watch) {
  const at::Tensor small = at::ones({kSmallSize, kSmallSize}, at::TensorOptions().dtype(dtype));
  const auto product = [&] { return at::mm(small, small); };
  product();
  return watch.is_slow(product) ? small : at::ones({kSize, kSize}, small.options());
}

}  // namespace

double measure_cpu_peak_flops(c10::ScalarType dtype, const Clock& clock) {
  const c10::InferenceMode no_autograd;
  const kernels::OutsideHostArena no_part_of_training;
  const Stopwatch watch(clock);
  const at::Tensor a = factor(dtype, watch);
  // Libraries may compute a type without instructions in float32, in some operators but not in others.
  if (dtype != c10::kFloat && a.size(0) == kSmallSize) return measure_cpu_peak_flops(c10::kFloat, clock);
  const auto plain = [&] { return at::mm(a, a); };
  if (dtype != c10::kFloat || !at::globalContext().hasMKLDNN()) return watch.best_flops(a.size(0), plain, kBudget);
  const at::Tensor packed = a.to_mkldnn();
  const auto with_onednn = [&] { return at::mkldnn_linear(packed, packed); };
  return std::max(watch.best_flops(a.size(0), plain, kBudget / 2),
                  watch.best_flops(a.size(0), with_onednn, kBudget / 2));
}

}  // namespace titan::metrics
