#include "parallel/autograd_collectives.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "distributed/tensor/sharding.h"
#include "parallel/group_in_graph.h"

namespace titan::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

void keep(AutogradContext* context, std::int64_t dim, dist::ProcessGroup* group) {
  context->saved_data["dim"] = dim;
  keep_group(context, group);
}

// Returns the x of all ranks [ranks, ...].
at::Tensor gather_stacked(const at::Tensor& x, dist::ProcessGroup& group) {
  const auto part = x.contiguous();
  auto shape = part.sizes().vec();
  shape.insert(shape.begin(), group.size());
  auto stacked = at::empty(shape, part.options());
  group.all_gather(stacked, part).wait();
  return stacked;
}

// Returns the parts of all ranks, concatenated along `dim`.
at::Tensor gather_values(const at::Tensor& x, std::int64_t dim, dist::ProcessGroup& group) {
  if (group.shares_memory(x.device())) return at::cat(gather_parts(x, group), dim);
  const auto stacked = gather_stacked(x, group);
  if (dim == 0) return stacked.flatten(0, 1);
  return stacked.movedim(0, dim).flatten(dim, dim + 1);
}

// Returns [ranks, ...]: the part of x for each rank, in rank order.
at::Tensor parts_of(const at::Tensor& x, std::int64_t dim, std::int64_t ranks) {
  auto shape = x.sizes().vec();
  shape[dim] /= ranks;
  shape.insert(shape.begin() + dim, ranks);
  return x.reshape(shape).movedim(dim, 0);
}

at::Tensor scatter_sum(const at::Tensor& x, std::int64_t dim, dist::ProcessGroup& group) {
  const auto parts = parts_of(x, dim, group.size());
  auto own = at::empty(parts[0].sizes(), x.options());
  if (!group.shares_memory(x.device())) {
    group.reduce_scatter(own, parts.contiguous(), dist::ReduceOp::kSum).wait();
    return own;
  }
  own.copy_(parts[group.rank()]);
  const auto others = group.exchange_buffer((group.size() - 1) * own.numel(), x.options());
  std::int64_t offset = 0;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank()) continue;
    others.narrow(0, offset, own.numel()).view(own.sizes()).copy_(parts[rank]);
    offset += own.numel();
  }
  group.reduce_scatter_parts(own, others, own.scalar_type(), dist::ReduceOp::kSum).wait();
  return own;
}

struct AllGather : torch::autograd::Function<AllGather> {
  static Variable forward(AutogradContext* context, const Variable& x, std::int64_t dim, dist::ProcessGroup* group) {
    keep(context, dim, group);
    return gather_values(x, dim, *group);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    auto& group = group_in(context);
    return {reduce_scatter(grads[0], context->saved_data["dim"].toInt(), group), {}, {}};
  }
};

struct ReduceScatter : torch::autograd::Function<ReduceScatter> {
  static Variable forward(AutogradContext* context, const Variable& x, std::int64_t dim, dist::ProcessGroup* group) {
    keep(context, dim, group);
    return scatter_sum(x, dim, *group);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    auto& group = group_in(context);
    return {all_gather(grads[0], context->saved_data["dim"].toInt(), group), {}, {}};
  }
};

struct AllGatherReplicated : torch::autograd::Function<AllGatherReplicated> {
  static Variable forward(AutogradContext* context, const Variable& x, std::int64_t dim, std::int64_t size,
                          dist::ProcessGroup* group) {
    keep(context, dim, group);
    const std::int64_t longest = dist::chunk_of(size, group->size(), 0).count;
    auto padded_shape = x.sizes().vec();
    padded_shape[dim] = longest;
    const bool is_even = size == longest * group->size();
    auto padded = is_even ? x : x.new_zeros(padded_shape);
    if (!is_even) padded.narrow(dim, 0, x.size(dim)).copy_(x);
    // Chunks are cut from the front and only the last ones are shorter, so all padding is at the end.
    return gather_values(padded, dim, *group).narrow(dim, 0, size);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    auto& group = group_in(context);
    const auto dim = context->saved_data["dim"].toInt();
    const auto [first, count] = dist::chunk_of(grads[0].size(dim), group.size(), group.rank());
    return {grads[0].narrow(dim, first, count), {}, {}, {}};
  }
};

at::Tensor sum_values(const at::Tensor& x, dist::ProcessGroup& group) {
  auto sum = x.clone(at::MemoryFormat::Contiguous);
  group.all_reduce(sum, dist::ReduceOp::kSum).wait();
  return sum;
}

struct AllReduce : torch::autograd::Function<AllReduce> {
  static Variable forward(AutogradContext*, const Variable& x, dist::ProcessGroup* group) {
    return sum_values(x, *group);
  }
  static variable_list backward(AutogradContext*, const variable_list& grads) { return {grads[0], {}}; }
};

struct SumGradients : torch::autograd::Function<SumGradients> {
  static Variable forward(AutogradContext* context, const Variable& x, dist::ProcessGroup* group) {
    keep_group(context, group);
    return x.view_as(x);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return {sum_values(grads[0], group_in(context)), {}};
  }
};

}  // namespace

std::vector<at::Tensor> gather_parts(const at::Tensor& x, dist::ProcessGroup& group) {
  if (!group.shares_memory(x.device())) return gather_stacked(x, group).unbind();
  const auto sent = group.exchange_buffer(x.numel(), x.options());
  sent.view(x.sizes()).copy_(x);
  auto parts = group.all_gather_parts(sent).wait_for_parts();
  for (auto& each : parts) each = each.view(x.sizes());
  return parts;
}

at::Tensor all_gather(const at::Tensor& x, std::int64_t dim, dist::ProcessGroup& group) {
  return group.size() == 1 ? x : AllGather::apply(x, dim, &group);
}

at::Tensor reduce_scatter(const at::Tensor& x, std::int64_t dim, dist::ProcessGroup& group) {
  TITAN_CHECK(x.size(dim) % group.size() == 0,
              "reduce_scatter over '" + group.name() + "': " + std::to_string(x.size(dim)) + " elements along dim " +
                  std::to_string(dim) + " for " + std::to_string(group.size()) + " ranks");
  return group.size() == 1 ? x : ReduceScatter::apply(x, dim, &group);
}

at::Tensor all_gather_replicated(const at::Tensor& x, std::int64_t dim, std::int64_t size, dist::ProcessGroup& group) {
  return group.size() == 1 ? x : AllGatherReplicated::apply(x, dim, size, &group);
}

at::Tensor all_reduce(const at::Tensor& x, dist::ProcessGroup& group) {
  return group.size() == 1 ? x : AllReduce::apply(x, &group);
}

at::Tensor sum_gradients(const at::Tensor& x, dist::ProcessGroup& group) {
  return group.size() == 1 ? x : SumGradients::apply(x, &group);
}

}  // namespace titan::parallel
