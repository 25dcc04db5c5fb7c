// What fully_shard is asked for. Names and defaults are those of torch.distributed.fsdp (FSDP2).
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "dist/mesh.h"

namespace titan::fsdp {

struct MixedPrecisionPolicy {
  std::optional<at::ScalarType> param_dtype;   // of the gathered parameters and so of compute; unset: as stored
  std::optional<at::ScalarType> reduce_dtype;  // of the gradient reduction; unset: the gradients' own
  std::optional<at::ScalarType> output_dtype;  // floating point outputs are cast to it; unset: left alone
  bool cast_forward_inputs = true;             // floating point inputs are cast to param_dtype
};

struct FullyShardOptions {
  dist::DeviceMesh mesh;  // 1-D: sharded over it. 2-D (replicate, shard): sharded over the second, replicated over the first
  // Free the gathered parameters after forward and gather again for backward (ZeRO-3), or keep them (ZeRO-2).
  // Unset: true, but false for the root module, whose parameters backward needs first.
  std::optional<bool> reshard_after_forward;
  MixedPrecisionPolicy mp_policy;
};

}  // namespace titan::fsdp
