// Collectives with autograd: backward runs the opposite collective. They fit any way to split a computation over
// ranks (after torch.distributed._functional_collectives and the redistribution of DTensors).
//
// Every call is collective over `group`, forward and backward. All ranks must make the calls in the same order, that
// of the model's code; autograd's is its reverse. A tensor x is split along `dim` if the ranks hold equal parts of it
// in rank order; it is whole if each rank has all of it. With a group of one rank, calls change nothing and add no
// node.
//
// On a device they run on the compute stream. On the host the calls wait.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "distributed/process_group.h"

namespace titan::parallel {

// Returns the x of all ranks, in rank order, read-only and without gradients. They may hold the other ranks' memory:
// drop them soon.
std::vector<at::Tensor> gather_parts(const at::Tensor& x, dist::ProcessGroup& group);

// All-gather of x, which is split along `dim`; backward is a reduce-scatter. Each rank's use of the result is a term
// of the loss: the gradients are summed, and each rank gets its part.
at::Tensor all_gather(const at::Tensor& x, std::int64_t dim, dist::ProcessGroup& group);

// Reduce-scatter: the sum of the ranks' x, split along `dim`; backward is an all-gather. Throws InternalError if the
// size of `dim` is not a multiple of the number of ranks.
at::Tensor reduce_scatter(const at::Tensor& x, std::int64_t dim, dist::ProcessGroup& group);

// All-gather for replicated use: backward slices the gradient, which is identical on all ranks. Part r has
// chunk_of(size, ranks, r).count elements along `dim`, of `size` in total, so the parts may be uneven.
at::Tensor all_gather_replicated(const at::Tensor& x, std::int64_t dim, std::int64_t size, dist::ProcessGroup& group);

// Returns the sum of the ranks' x; backward passes the gradient on, which is identical on all ranks.
at::Tensor all_reduce(const at::Tensor& x, dist::ProcessGroup& group);

// Returns x, which is identical on all ranks; backward all-reduces: each rank's use of x is a term of the loss, and the
// gradients are summed.
at::Tensor sum_gradients(const at::Tensor& x, dist::ProcessGroup& group);

}  // namespace titan::parallel
