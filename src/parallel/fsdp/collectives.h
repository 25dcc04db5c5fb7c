// The two collectives of a parameter group, each on one flat buffer (after torch's _fsdp_collectives.py).
//
// All-gather: rank r's part is the padded chunks of all parameters one after the other, cast to the compute dtype or to
// float8 during copy-in; copy-out writes every parameter's chunks, in rank order, into its gathered storage. If ranks
// share memory, copy-out reads the parts in the other ranks' memory; three or more ranks share one gathered storage,
// and copy-in writes to it directly. Reduce-scatter: row r of the input, viewed [world, -1], is the concatenation of
// every gradient's r-th chunk of its shard dim, padded with zeros and cast to the reduce dtype during copy-in. If ranks
// share memory, a rank keeps its own row private and publishes the others', all in the gradients' dtype if the reduce
// dtype holds it exactly.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "distributed/process_group.h"
#include "parallel/fsdp/fsdp_param.h"

namespace titan::fsdp {

// Splits a flat buffer into views with the shapes of `tensors`, one after the other.
std::vector<at::Tensor> split_as(const at::Tensor& flat, const std::vector<at::Tensor>& tensors);

struct AllGatherResult {
  at::Tensor output;  // [world * total] in the compute dtype, or bytes; undefined if ranks read each other's memory
  at::Tensor scales = {};  // of the parameters that this gather has rounded to float8; undefined if there are none
  dist::Work work;
  // If all ranks share `output`: the offset of each parameter's parts in it, and its end. Otherwise empty.
  std::vector<std::int64_t> offsets;
};

// Starts the all-gather. Collective over `group` (at least two ranks). All parameters must have one compute dtype. If
// some are gathered in float8, the buffers have the bytes of all.
AllGatherResult start_all_gather(const std::vector<FsdpParam*>& params, dist::ProcessGroup& group);

// Waits, and fills every parameter's gathered storage, which it allocates or takes from the shared output. The buffer
// `result.output` is no longer needed then.
void finish_all_gather(AllGatherResult& result, const std::vector<FsdpParam*>& params, int world_size);

struct ReduceScatterResult {
  at::Tensor input;   // [world * total], without this rank's row if ranks share memory; alive until the end
  at::Tensor own;     // this rank's row [total] if ranks share memory; otherwise undefined
  at::Tensor output;  // [total], valid at the end: this rank's padded chunks of all parameters, reduced over the group
  at::ScalarType dtype = at::kFloat;  // dtype of `output`
  dist::Work work;
};

// Builds the input of a reduce-scatter over `group` from `grads` (one per parameter, unsharded), divided by
// `divisor`. Not collective.
ReduceScatterResult copy_in_gradients(const std::vector<FsdpParam*>& params, const std::vector<at::Tensor>& grads,
                                      at::ScalarType reduce_dtype, double divisor, const dist::ProcessGroup& group);

// Starts the reduce-scatter of that input; fills the other fields. `op` is kSum, or kAvg if the ranks share memory.
// Collective over `group`.
void start_reduce_scatter(ReduceScatterResult& result, dist::ProcessGroup& group, dist::ReduceOp op);

// Waits for the reduce-scatter. Idempotent.
void finish_reduce_scatter(ReduceScatterResult& result);

}  // namespace titan::fsdp
