// Summed cross entropy on CPU, from logits in their own dtype. ATen's needs a float32 copy of the logits, a float32
// log-softmax and a float32 gradient, together most of a step's memory if the vocabulary is large.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/cpu/rows/cross_entropy_rows.h"

namespace titan::kernels {

// Returns the fastest kernels of cross_entropy_rows.h that this processor runs.
const CrossEntropyKernels& best_cross_entropy();

// True if the functions below take these: contiguous logits [..., V], float32 or bfloat16, and contiguous labels int64
// [...], both on CPU, or both on the meta device, where the results have no values.
bool takes(const at::Tensor& logits, const at::Tensor& labels);

struct CrossEntropy {
  at::Tensor loss;   // float32, 0-d: the sum over the labels that count
  at::Tensor stats;  // float32 [labels, 2]: SoftmaxStats of each row, for the gradient
};

// Computes the summed loss. Labels equal to `ignored`, which is below 0, do not count. Throws c10::IndexError, as ATen
// does, for any other label outside [0, V). The result does not depend on the number of threads.
CrossEntropy cross_entropy_forward(const CrossEntropyKernels& kernels, const at::Tensor& logits,
                                   const at::Tensor& labels, std::int64_t ignored);

// Throws c10::IndexError, as ATen does, if a label (on the host) is neither `ignored` nor in [0, vocab).
void check_labels(const at::Tensor& labels, std::int64_t vocab, std::int64_t ignored);

// Returns the stats of logits that cover a part of the vocabulary; 0 for labels that do not count. A label may also be
// V, which means that it is in another part of the vocabulary.
at::Tensor softmax_stats(const CrossEntropyKernels& kernels, const at::Tensor& logits, const at::Tensor& labels);

// Writes the gradient of the logits for `loss_grad` (float32, 0-d) to `grad`, which is like the logits and may be the
// logits.
void cross_entropy_backward(const CrossEntropyKernels& kernels, const at::Tensor& loss_grad, const at::Tensor& logits,
                            const at::Tensor& labels, const at::Tensor& stats, const at::Tensor& grad);

}  // namespace titan::kernels
