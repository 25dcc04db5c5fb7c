// The two exchanges of a parameter group, each one flat buffer (after torch's _fsdp_collectives.py).
//
// All-gather: rank r's part is the padded chunks of all parameters one after the other, cast to the compute dtype while
// they are copied in; copy-out writes every parameter's chunks, in rank order, into its gathered storage. Where ranks
// share memory, it takes them from where the ranks have them; three and more have that storage once for all of them, and
// copy-in writes there already.
// Reduce-scatter: row r of the input, viewed [world, -1], is the concatenation of every gradient's r-th chunk of its
// shard dim, padded with zeros, cast to the reduce dtype while it is copied in. Where ranks share memory, a rank keeps
// its own row to itself and shows the others', all in the gradients' dtype if the reduce dtype holds it exactly.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "distributed/process_group.h"
#include "parallel/fsdp/fsdp_param.h"

namespace titan::fsdp {

// A flat buffer as tensors of these shapes, one after the other.
std::vector<at::Tensor> split_as(const at::Tensor& flat, const std::vector<at::Tensor>& tensors);

struct AllGatherResult {
  at::Tensor output;  // [world * total] in the compute dtype; undefined where ranks read each other's memory
  dist::Work work;
  // Where `output` exists once for all ranks: where in it each parameter's parts begin, and its end. Empty elsewhere.
  std::vector<std::int64_t> offsets;
};

// Starts the exchange. Collective over `group` (of two ranks at least); all parameters must have one compute dtype.
AllGatherResult start_all_gather(const std::vector<FsdpParam*>& params, dist::ProcessGroup& group);

// Waits, and writes every parameter's gathered storage, which it allocates, or which is a part of what exists once; the
// buffer `result.output` is done with then.
void finish_all_gather(AllGatherResult& result, const std::vector<FsdpParam*>& params, int world_size);

struct ReduceScatterResult {
  at::Tensor input;   // alive until the exchange is over: [world * total], without this rank's row in shared memory
  at::Tensor own;     // that row [total] there; undefined elsewhere
  at::Tensor output;  // [total]: this rank's padded chunks of all parameters, reduced over the group; when it is over
  at::ScalarType dtype = at::kFloat;  // of `output`
  dist::Work work;
};

// The rows of a reduce-scatter over `group` from `grads` (one per parameter, unsharded), divided by `divisor`. Not
// collective.
ReduceScatterResult copy_in_gradients(const std::vector<FsdpParam*>& params, const std::vector<at::Tensor>& grads,
                                      at::ScalarType reduce_dtype, double divisor, const dist::ProcessGroup& group);

// Starts the exchange of what was copied in; fills the other fields. kSum, or kAvg where the ranks share memory.
// Collective over `group`.
void start_reduce_scatter(ReduceScatterResult& result, dist::ProcessGroup& group, dist::ReduceOp op);

// Waits for it. Calling it again changes nothing.
void finish_reduce_scatter(ReduceScatterResult& result);

}  // namespace titan::fsdp
