#include "kernels/cpu/rows/cross_entropy_kernel.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"

namespace titan::kernels {
namespace {

constexpr std::int64_t kElementsPerThread = 32768;  // minimum: fewer take less time than waking a thread

// Calls body(first row, those rows) for ranges of rows, on ATen's threads.
template <typename T, typename Body>
void for_rows(const at::Tensor& logits, const at::Tensor& labels, const Body& body) {
  const std::int64_t vocab = logits.size(-1);
  const auto* const data = static_cast<const T*>(logits.const_data_ptr());
  const auto* const label_data = labels.const_data_ptr<std::int64_t>();
  const std::int64_t grain = std::max<std::int64_t>(1, kElementsPerThread / vocab);
  parallel_for(0, labels.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
    body(begin, LossRows<T>{data + begin * vocab, label_data + begin, end - begin, vocab});
  });
}

SoftmaxStats* stats_of(const at::Tensor& stats) { return static_cast<SoftmaxStats*>(stats.data_ptr()); }

// Returns each row's loss, and fills `stats`.
std::vector<double> losses_of_rows(const CrossEntropyKernels& kernels, const at::Tensor& logits,
                                   const at::Tensor& labels, const at::Tensor& stats) {
  std::vector<double> losses(static_cast<std::size_t>(labels.numel()));
  const auto run = [&](auto kernel) {
    return [&, kernel](std::int64_t begin, const auto& rows) {
      kernel(rows, stats_of(stats) + begin, losses.data() + begin);
    };
  };
  if (logits.scalar_type() == at::kFloat) {
    for_rows<float>(logits, labels, run(kernels.forward_float));
  } else {
    for_rows<BFloat16Bits>(logits, labels, run(kernels.forward_bfloat16));
  }
  return losses;
}

}  // namespace

void check_labels(const at::Tensor& labels, std::int64_t vocab, std::int64_t ignored) {
  const auto* const data = labels.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < labels.numel(); ++i)
    TORCH_CHECK_INDEX(data[i] == ignored || (data[i] >= 0 && data[i] < vocab), "Target ", data[i],
                      " is out of bounds.");
}

const CrossEntropyKernels& best_cross_entropy() { return TITAN_BEST_KERNELS(kCrossEntropy); }

bool takes(const at::Tensor& logits, const at::Tensor& labels) {
  const auto type = logits.scalar_type();
  return (type == at::kFloat || type == at::kBFloat16) && (logits.is_cpu() || logits.is_meta()) &&
         labels.device() == logits.device() && labels.scalar_type() == at::kLong && logits.dim() > 0 &&
         logits.sizes().slice(0, logits.dim() - 1) == labels.sizes() && logits.numel() > 0 && logits.is_contiguous() &&
         labels.is_contiguous();
}

CrossEntropy cross_entropy_forward(const CrossEntropyKernels& kernels, const at::Tensor& logits,
                                   const at::Tensor& labels, std::int64_t ignored) {
  const auto options = logits.options().dtype(at::kFloat);
  CrossEntropy out{at::empty({}, options), at::empty({labels.numel(), 2}, options)};
  if (logits.is_meta()) return out;
  check_labels(labels, logits.size(-1), ignored);
  const auto losses = losses_of_rows(kernels, logits, labels, out.stats);
  // Writes a float: fill_() throws for a double beyond float32's largest, which is infinity here as in ATen's sum.
  *out.loss.mutable_data_ptr<float>() = static_cast<float>(std::accumulate(losses.begin(), losses.end(), 0.0));
  return out;
}

at::Tensor softmax_stats(const CrossEntropyKernels& kernels, const at::Tensor& logits, const at::Tensor& labels) {
  auto stats = at::zeros({labels.numel(), 2}, logits.options().dtype(at::kFloat));
  if (!logits.is_meta()) losses_of_rows(kernels, logits, labels, stats);
  return stats;
}

void cross_entropy_backward(const CrossEntropyKernels& kernels, const at::Tensor& loss_grad, const at::Tensor& logits,
                            const at::Tensor& labels, const at::Tensor& stats, const at::Tensor& grad) {
  if (logits.is_meta()) return;
  const auto factor = loss_grad.item<float>();
  const auto run = [&](auto kernel, auto* to) {
    return [&, kernel, to](std::int64_t begin, const auto& rows) {
      kernel(rows, stats_of(stats) + begin, factor, to + begin * rows.vocab);
    };
  };
  if (logits.scalar_type() == at::kFloat) {
    for_rows<float>(logits, labels, run(kernels.backward_float, static_cast<float*>(grad.data_ptr())));
  } else {
    for_rows<BFloat16Bits>(logits, labels, run(kernels.backward_bfloat16, static_cast<BFloat16Bits*>(grad.data_ptr())));
  }
}

}  // namespace titan::kernels
