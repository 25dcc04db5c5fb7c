// The training loss.
#pragma once

#include <ATen/core/Tensor.h>

namespace titan::train {

constexpr std::int64_t kIgnoreIndex = -100;  // a label that does not count

// Sum over tokens of the cross entropy of logits [B, T, V] against labels int64 [B, T], in float32, 0-d. Divide by the
// global number of labels that count. On CPU (and on the meta device, as on CPU) logits in float32 or bfloat16 are read
// as they are, and their gradient takes their memory when backward is the last to hold them: drop them before. The loss
// can be differentiated once. Throws c10::IndexError for a label outside the vocabulary.
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& labels);

// The same of ATen's operators, on a float32 copy of the logits: what runs on other devices, and without
// kernels::uses_own().
at::Tensor composed_cross_entropy_sum(const at::Tensor& logits, const at::Tensor& labels);

}  // namespace titan::train
