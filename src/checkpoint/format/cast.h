// Casts weights to another dtype, and describes values that would overflow.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace titan::checkpoint {

// Returns `from` in `dtype`; a NaN keeps its sign.
at::Tensor cast(const at::Tensor& from, c10::ScalarType dtype);

// Describes the finite values of `from` that are infinite in `dtype`, or returns "" if there are none: "3 numbers
// beyond the range of float16, the largest of them 70000".
std::string overflow_text(const at::Tensor& from, c10::ScalarType dtype);

}  // namespace titan::checkpoint
