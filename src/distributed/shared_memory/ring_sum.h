// Sums over ranks in the order of Gloo's ring.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace titan::dist {

// output [n] = the sum of `parts` [n], one per rank, which are the elements from `first` on of inputs of
// `input_numel`. In the order of Gloo's ring, so that the numbers are those of PyTorch's ranks: chunk c starts with
// rank c - 1 and goes down, in a circle, to rank c. A part may be `output`, or have a narrower dtype. With a `divisor`
// other than 1, then divided by it, as output.div_(divisor) does. On ATen's threads, whose number changes no bit.
void add_as_ring(const at::Tensor& output, const std::vector<at::Tensor>& parts, std::int64_t first,
                 std::int64_t input_numel, double divisor = 1);

}  // namespace titan::dist
