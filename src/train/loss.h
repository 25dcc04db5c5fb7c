// The training loss.
#pragma once

#include <ATen/core/Tensor.h>

namespace titan::train {

constexpr std::int64_t kIgnoreIndex = -100;  // a label that does not count

// Sum over tokens of the cross entropy of logits [B, T, V] against labels int64 [B, T], in float32, 0-d. Divide by the
// global number of labels that count.
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& labels);

}  // namespace titan::train
