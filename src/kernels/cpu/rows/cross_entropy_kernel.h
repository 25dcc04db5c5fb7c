// The summed cross entropy on CPU, from logits in their own dtype: ATen's takes a float32 copy of them, a float32
// log-softmax and a float32 gradient, which together are most of the memory of a step where the vocabulary is large.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/cpu/rows/cross_entropy_rows.h"

namespace titan::kernels {

// The fastest of cross_entropy_rows.h that this processor runs.
const CrossEntropyKernels& best_cross_entropy();

// Whether the functions below take these: contiguous logits [..., V], float32 or bfloat16, and contiguous labels int64
// [...], both on CPU, or both on the meta device, where the results have no numbers.
bool takes(const at::Tensor& logits, const at::Tensor& labels);

struct CrossEntropy {
  at::Tensor loss;   // float32, 0-d: the sum over the labels that count
  at::Tensor stats;  // float32 [labels, 2]: SoftmaxStats of each row, for the gradient
};

// Labels equal to `ignored`, which is below 0, do not count. Throws c10::IndexError, as ATen does, for one that is
// neither that nor below V. The result does not depend on the number of threads.
CrossEntropy cross_entropy_forward(const CrossEntropyKernels& kernels, const at::Tensor& logits,
                                   const at::Tensor& labels, std::int64_t ignored);

// Throws c10::IndexError, as ATen does, for a label on the host that is neither `ignored` nor below `vocab`.
void check_labels(const at::Tensor& labels, std::int64_t vocab, std::int64_t ignored);

// Of logits that are a part of the vocabulary, with labels that may be V as well: one that stands elsewhere in it. Gives
// the stats, of this part; 0 for labels that do not count.
at::Tensor softmax_stats(const CrossEntropyKernels& kernels, const at::Tensor& logits, const at::Tensor& labels);

// Writes the gradient of the logits for `loss_grad`, float32 0-d, to `grad`: like the logits, which it may be itself.
void cross_entropy_backward(const CrossEntropyKernels& kernels, const at::Tensor& loss_grad, const at::Tensor& logits,
                            const at::Tensor& labels, const at::Tensor& stats, const at::Tensor& grad);

}  // namespace titan::kernels
