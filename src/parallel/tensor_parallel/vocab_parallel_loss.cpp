#include "parallel/tensor_parallel/vocab_parallel_loss.h"

#include <ATen/ATen.h>

#include "kernels/cpu/rows/cross_entropy_kernel.h"
#include "kernels/operators.h"
#include "nn/ops/meta_run.h"

// Uses masks: the meta device, on which memory is planned, has no kernels for at::where and the logical operators.
namespace titan::tp {
namespace {

// True if the meta device stands for a GPU, which has no kernels for the loss.
bool stands_for_gpu(const at::Tensor& x) { return x.is_meta() && meta_run::stands_for_gpu(); }

// Returns [rows, 2]: the largest logit of this rank's part, and the sum of e^(logit - largest).
at::Tensor stats_of_part(const at::Tensor& logits, const at::Tensor& own_labels) {
  if (!stands_for_gpu(logits)) {
    if (auto stats = ops::softmax_stats(logits, own_labels); stats.defined()) return stats;
  }
  const auto rows = logits.flatten(0, -2).to(at::kFloat);
  const auto largest = rows.amax(-1, /*keepdim=*/true);
  return at::cat({largest, (rows - largest).exp_().sum(-1, /*keepdim=*/true)}, 1);
}

}  // namespace

// Converts labels to indices in this rank's part; one past its end for a label that another rank has.
at::Tensor VocabParallelLosses::own_labels(const at::Tensor& labels, std::int64_t own_vocab) const {
  const auto local = labels - first_;
  const auto is_elsewhere = at::bitwise_or(local < 0, local >= own_vocab);
  return local.masked_fill(is_elsewhere, own_vocab).masked_fill_(labels == nn::kIgnoreIndex, nn::kIgnoreIndex);
}

nn::RowLosses::Result VocabParallelLosses::forward(const at::Tensor& logits, const at::Tensor& labels,
                                                   bool wants_each) const {
  if (labels.is_cpu()) kernels::check_labels(labels, vocab_, nn::kIgnoreIndex);
  const auto own_vocab = logits.size(-1);
  const auto own = own_labels(labels, own_vocab);
  auto stats = stats_of_part(logits, own);
  const auto flat_labels = own.flatten();
  const auto counts = flat_labels >= 0, is_here = at::bitwise_and(counts, flat_labels < own_vocab);

  // 1. the largest logit of all
  const auto largest = stats.select(1, 0).contiguous();
  group_.all_reduce(largest, dist::ReduceOp::kMax).wait();

  // 2. the sum of exponentials, and the label's logit, which one rank has
  const auto of_label = logits.flatten(0, -2)
                            .gather(1, flat_labels.masked_fill(at::bitwise_not(is_here), 0).unsqueeze(1))
                            .squeeze(1)
                            .to(at::kFloat)
                            .masked_fill_(at::bitwise_not(is_here), 0);
  const auto sums = at::stack({stats.select(1, 1) * (stats.select(1, 0) - largest).exp_(), of_label});
  group_.all_reduce(sums, dist::ReduceOp::kSum).wait();

  auto losses = sums[0].to(at::kDouble).log_() + (largest.to(at::kDouble) - sums[1]);
  losses.masked_fill_(at::bitwise_not(counts), 0);
  return {losses.sum().to(at::kFloat), at::stack({largest, sums[0]}, 1), wants_each ? losses : at::Tensor()};
}

void VocabParallelLosses::backward(const at::Tensor& loss_grad, const at::Tensor& logits, const at::Tensor& labels,
                                   const at::Tensor& stats, const at::Tensor& grad) const {
  const auto own_vocab = logits.size(-1);
  const auto own = own_labels(labels, own_vocab);
  if (!stands_for_gpu(logits) && ops::cross_entropy_backward(loss_grad, logits, own, stats, grad)) return;
  const auto flat_labels = own.flatten();
  const auto counts = flat_labels >= 0, is_here = at::bitwise_and(counts, flat_labels < own_vocab);
  auto rows = (logits.flatten(0, -2).to(at::kFloat) - stats.narrow(1, 0, 1)).exp_().div_(stats.narrow(1, 1, 1));
  const auto column = flat_labels.masked_fill(at::bitwise_not(is_here), 0).unsqueeze(1);
  rows.scatter_add_(1, column, is_here.to(at::kFloat).neg_().unsqueeze(1));
  grad.copy_(rows.mul_(loss_grad).masked_fill_(at::bitwise_not(counts).unsqueeze(1), 0).view_as(grad));
}

}  // namespace titan::tp
