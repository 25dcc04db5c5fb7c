// Casts of weights to another dtype that lose nothing without a word.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace titan::checkpoint {

// Returns `from` in `dtype`; a NaN keeps its sign.
at::Tensor cast(const at::Tensor& from, c10::ScalarType dtype);

// Returns which finite numbers of `from` are infinite in `dtype`, in words for a message, "" where there are none:
// "3 numbers beyond the range of float16, the largest of them 70000".
std::string overflow_text(const at::Tensor& from, c10::ScalarType dtype);

}  // namespace titan::checkpoint
