// Linear layers of few rows on CPU, such as those of a model that writes a token: products of a matrix and a few
// vectors, which take as long as reading the weight. ATen's are far from that, in bfloat16 most.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/cpu/rows/linear_rows.h"

namespace titan::kernels {

// Returns the kernels of this processor.
const LinearKernels& best_linear();

// True if linear_of_few_rows() takes these: x [..., depth] of at most 8 rows and weight [outputs, depth], both
// contiguous, on CPU, in the same dtype, float32 or bfloat16, and not empty.
bool takes_few_rows(const at::Tensor& x, const at::Tensor& weight);

// Returns x W^T [..., outputs]. Sums are in float32, rounded once. Runs on ATen's threads; an element's bits depend
// only on its row of x and of the weight. Not recorded by autograd.
at::Tensor linear_of_few_rows(const LinearKernels& kernels, const at::Tensor& x, const at::Tensor& weight);

}  // namespace titan::kernels
