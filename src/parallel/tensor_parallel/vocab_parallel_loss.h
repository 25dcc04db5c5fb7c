// Cross entropy of logits that are split over the vocabulary and never gathered (torch.distributed.tensor.parallel's
// loss_parallel, Megatron-LM's vocab-parallel cross entropy).
#pragma once

#include <ATen/core/Tensor.h>

#include "distributed/process_group.h"
#include "nn/ops/cross_entropy.h"

namespace titan::tp {

// Each rank of the group has the logits of the tokens [first, first + V / ranks), and the labels of the full
// vocabulary. The loss is the same on every rank. Three numbers per row are exchanged, in torch's order: the largest
// logit, then the sum of exponentials and the label's logit. forward() is collective over the group, backward() is
// not.
//
// On CPU it uses this program's kernels where they apply; otherwise ATen's operators, on a float32 copy of the
// logits.
class VocabParallelLosses : public nn::RowLosses {
 public:
  // The group must outlive this. `vocab`: size of the vocabulary over all ranks.
  VocabParallelLosses(std::int64_t first, std::int64_t vocab, dist::ProcessGroup& group)
      : first_(first), vocab_(vocab), group_(group) {}

  // Throws c10::IndexError for a label outside the vocabulary if the labels are on the host.
  Result forward(const at::Tensor& logits, const at::Tensor& labels, bool wants_each) const override;
  void backward(const at::Tensor& loss_grad, const at::Tensor& logits, const at::Tensor& labels,
                const at::Tensor& stats, const at::Tensor& grad) const override;

 private:
  at::Tensor own_labels(const at::Tensor& labels, std::int64_t own_vocab) const;

  std::int64_t first_, vocab_;
  dist::ProcessGroup& group_;
};

}  // namespace titan::tp
