// Linear layers that overlap the collectives over the sequence with their matmuls, in parts (asynchronous tensor
// parallelism; torch.distributed._symmetric_memory's fused_all_gather_matmul and fused_matmul_reduce_scatter). While
// one part of the sequence is multiplied, the next one is sent: on CUDA on the group's own stream, on the host if the
// group's backend has a thread of its own.
//
// x is [B, T, features], with T split over the R ranks of the group: [B, T / R, features] on each. A part is a
// quarter of each rank's tokens; a half or all of them if they are not divisible by four.
//
// Collective over the group, forward and backward. Values equal those of the collective and the layer one after the
// other, except for the rounding of a matmul with fewer rows. Activation checkpointing treats both as linear layers:
// if its policy keeps them, the recomputation takes their output, and linear_reduce_scatter then communicates
// nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include "distributed/process_group.h"

namespace titan::tp {

struct GatheredLinear {
  at::Tensor output;  // [B, T, out]: whole W^T
  at::Tensor whole;   // [B, T, in], for other layers with the same input
};

// All-gather of x [B, T / R, in], then a linear layer, weight [out, in]. The gradient of x is the sum over the ranks.
GatheredLinear all_gather_linear(const at::Tensor& x, const at::Tensor& weight, dist::ProcessGroup& group);

// Linear layer, x [B, T, in], weight [out, in], then a reduce-scatter: returns [B, T / R, out], this rank's part of
// the sequence of the sum of the ranks' x W^T.
at::Tensor linear_reduce_scatter(const at::Tensor& x, const at::Tensor& weight, dist::ProcessGroup& group);

}  // namespace titan::tp
