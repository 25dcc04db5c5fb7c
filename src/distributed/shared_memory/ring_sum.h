// Sums over ranks in the order of Gloo's ring.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace titan::dist {

// Computes output [n] = the sum of `parts` [n], one per rank. The parts are the elements from `first` on of inputs
// with `input_numel` elements. Adds in the order of Gloo's ring, so that the values equal those of PyTorch's ranks:
// chunk c starts with rank c - 1 and goes down, in a circle, to rank c. A part may be `output`, or have a narrower
// dtype. If `divisor` is not 1, then divides as output.div_(divisor) does. Runs on ATen's threads; their number
// changes no bit.
void add_as_ring(const at::Tensor& output, const std::vector<at::Tensor>& parts, std::int64_t first,
                 std::int64_t input_numel, double divisor = 1);

}  // namespace titan::dist
