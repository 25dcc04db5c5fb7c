// Collectives that autograd runs through: each one's gradient is the collective that undoes it. For all ways to split a
// computation over ranks (after torch.distributed._functional_collectives and the redistribution of DTensors).
//
// Every call is collective over `group`, forward and backward, and the ranks must call them in one order: that of the
// model's code, of which autograd's is the reverse. A tensor x is split along `dim` where the ranks hold equal parts of
// it in rank order; it is whole where each has all of it. A group of one rank changes nothing and adds no node.
//
// On a device they run on the stream that computes. On the host the calls wait.
#pragma once

#include <ATen/core/Tensor.h>

#include "distributed/process_group.h"

namespace titan::parallel {

// The whole of x, which is split along `dim`. What each rank does with it is a term of the loss: the gradients are
// summed, and each rank gets its part (an all-gather; backward a reduce-scatter).
at::Tensor all_gather(const at::Tensor& x, std::int64_t dim, dist::ProcessGroup& group);

// The sum of the ranks' x, split along `dim`, whose size is a multiple of the ranks (a reduce-scatter; backward an
// all-gather). Throws InternalError where it is not.
at::Tensor reduce_scatter(const at::Tensor& x, std::int64_t dim, dist::ProcessGroup& group);

// The whole of x, with which all ranks do the same: the gradient, which each of them has whole, is only cut. Part r has
// chunk_of(size, ranks, r).count elements along `dim`, of `size` in all, so that the parts may be uneven.
at::Tensor all_gather_replicated(const at::Tensor& x, std::int64_t dim, std::int64_t size, dist::ProcessGroup& group);

}  // namespace titan::parallel
