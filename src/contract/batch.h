// A microbatch of one rank.
#pragma once

#include <ATen/core/Tensor.h>

namespace titan {

struct Batch {
  at::Tensor tokens;  // int64 [B, T], host
  at::Tensor labels;  // int64 [B, T], host; labels[b][t] follows tokens[b][t]; nn::kIgnoreIndex counts as no label
};

}  // namespace titan
