// Options of fully_shard. Names and defaults are those of torch.distributed.fsdp (FSDP2).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <optional>
#include <vector>

#include "distributed/mesh.h"
#include "nn/module.h"

namespace titan::fsdp {

struct MixedPrecisionPolicy {
  std::optional<at::ScalarType> param_dtype =
      std::nullopt;  // dtype of the gathered parameters and so of compute; unset: as stored
  std::optional<at::ScalarType> reduce_dtype =
      std::nullopt;  // dtype of the gradient reduction; unset: the gradients' own
  std::optional<at::ScalarType> output_dtype = std::nullopt;  // dtype of floating point outputs; unset: left alone
  bool cast_forward_inputs = true;                            // floating point inputs are cast to param_dtype
};

// Shards, their gradients and so the optimizer's state live on the host; a shard is copied to the device when it is
// gathered, and its gradient back when it is reduced. On a CPU mesh they are on the host already: no effect.
struct CPUOffloadPolicy {
  bool pin_memory = true;  // page-locked host memory, for copies beside computation
};

// Treatment of the gathered parameters after forward: freed and gathered again for backward (true: ZeRO-3), kept
// (false: ZeRO-2), or resharded over a smaller group of that many neighbors (ZeRO++ hpZ), so that backward gathers
// over fast links.
struct ReshardAfterForward {
  ReshardAfterForward(bool yes) : reshard(yes) {}
  ReshardAfterForward(int size) : reshard(true), group_size(size) {}
  bool reshard;
  std::optional<int> group_size;
};

struct FullyShardOptions {
  // 1-D: sharded over it. 2-D (replicate, shard): sharded over the second axis, replicated over the first.
  dist::DeviceMesh mesh;
  // Unset: true, but false for the root module, whose parameters backward needs first. A number must divide the
  // number of shard ranks: that number is true, 1 is false; with any other, fully_shard is collective over those
  // neighbors.
  std::optional<ReshardAfterForward> reshard_after_forward = std::nullopt;
  MixedPrecisionPolicy mp_policy = {};
  std::optional<CPUOffloadPolicy> offload_policy = std::nullopt;
  // The dim to shard a parameter along; 0 if the function is unset or returns nullopt. A dim other than 0 must be
  // divisible by the shard ranks. Negative dims count from the end.
  std::function<std::optional<std::int64_t>(const nn::NamedParameter&)> shard_placement_fn = {};
  // Parameters to leave as they are: not sharded, not gathered, their gradients not reduced.
  std::vector<at::Tensor> ignored_params = {};
};

}  // namespace titan::fsdp
