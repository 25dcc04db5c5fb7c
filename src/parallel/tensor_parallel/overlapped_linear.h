// Linear layers whose collectives over the sequence run beside their products, in parts (asynchronous tensor
// parallelism; torch.distributed._symmetric_memory's fused_all_gather_matmul and fused_matmul_reduce_scatter). While one
// part of the sequence is multiplied the next one is on its way: on CUDA on the group's own stream, on the host where
// the group's backend works in a thread of its own.
//
// x is [B, T, features], of which T is split over the R ranks of the group: [B, T / R, features] on each. A part is a
// quarter of each rank's tokens, a half where four do not divide them, or all.
//
// Collective over the group, forward and backward. Values are those of the collective and the layer one after the
// other, up to how a product of fewer rows rounds. Both are linear layers to activation checkpointing: where its policy
// keeps them the recomputation takes their output, and linear_reduce_scatter communicates nothing then.
#pragma once

#include <ATen/core/Tensor.h>

#include "distributed/process_group.h"

namespace titan::tp {

struct GatheredLinear {
  at::Tensor output;  // [B, T, out]: whole W^T
  at::Tensor whole;   // [B, T, in], for other layers with the same input
};

// x [B, T / R, in], weight [out, in]. The gradient of x is the sum over the ranks.
GatheredLinear all_gather_linear(const at::Tensor& x, const at::Tensor& weight, dist::ProcessGroup& group);

// x [B, T, in], weight [out, in] -> [B, T / R, out]: the sum of the ranks' x W^T, this rank's part of the sequence.
at::Tensor linear_reduce_scatter(const at::Tensor& x, const at::Tensor& weight, dist::ProcessGroup& group);

}  // namespace titan::tp
