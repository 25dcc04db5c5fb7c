#include "parallel/fsdp/collectives.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"

namespace titan::fsdp {
namespace {

std::int64_t total_numel(const std::vector<FsdpParam*>& params) {
  std::int64_t total = 0;
  for (const auto* param : params) total += param->chunk_numel();
  return total;
}

// One pass on CUDA, with padding and with the cast of bfloat16 to float32; on CPU it would be several.
bool has_fused_chunk_cat(const std::vector<FsdpParam*>& params, const at::Tensor& grad, at::ScalarType reduce_dtype) {
  const bool dtypes =
      grad.scalar_type() == reduce_dtype || (grad.scalar_type() == at::kBFloat16 && reduce_dtype == at::kFloat);
  return !grad.is_cpu() && dtypes &&
         std::all_of(params.begin(), params.end(), [](const auto* param) { return param->shard_dim() == 0; });
}

}  // namespace

AllGatherResult start_all_gather(const std::vector<FsdpParam*>& params, dist::ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  std::int64_t total = 0;
  for (const auto* param : params) total += param->send_numel();
  const auto dtype = params.front()->param_dtype();
  const auto options = at::TensorOptions().dtype(dtype).device(params.front()->devices().compute);
  AllGatherResult result;
  result.output = at::empty({total * group.size()}, options);
  auto input = result.output.narrow(0, group.rank() * total, total);
  std::vector<at::Tensor> sources, targets;
  std::int64_t offset = 0;
  for (const auto* param : params) {
    TITAN_CHECK(param->param_dtype() == dtype, param->fqn() + " has another compute dtype than the rest of its group");
    sources.push_back(param->send_buffer());
    targets.push_back(input.narrow(0, offset, param->send_numel()));
    offset += param->send_numel();
  }
  at::_foreach_copy_(targets, sources);  // casts; one kernel on CUDA
  result.work = group.all_gather(result.output, input);
  return result;
}

void finish_all_gather(AllGatherResult& result, const std::vector<FsdpParam*>& params, int world_size) {
  const at::NoGradGuard no_grad;
  result.work.wait();
  const auto by_rank = result.output.view({world_size, -1});
  std::vector<std::int64_t> sizes;
  std::vector<at::Tensor> targets;
  for (auto* param : params) {
    sizes.push_back(param->send_numel());
    targets.push_back(param->gather_target(world_size));
  }
  const bool all_in_order = std::all_of(targets.begin(), targets.end(), [](const auto& t) { return t.defined(); });
  if (all_in_order) {
    at::split_with_sizes_copy_out(targets, by_rank, sizes, /*dim=*/1);  // one kernel on CUDA
    return;
  }
  const auto parts = by_rank.split_with_sizes(sizes, /*dim=*/1);
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (targets[i].defined()) {
      targets[i].copy_(parts[i]);
    } else {
      params[i]->copy_out(parts[i]);
    }
  }
}

at::Tensor copy_in_gradients(const std::vector<FsdpParam*>& params, const std::vector<at::Tensor>& grads,
                             at::ScalarType reduce_dtype, int world_size) {
  const at::NoGradGuard no_grad;
  const std::int64_t total = total_numel(params);
  auto input = at::empty({world_size * total}, grads.front().options().dtype(reduce_dtype));
  if (has_fused_chunk_cat(params, grads.front(), reduce_dtype)) {
    auto by_rank = input.view({world_size, -1});
    at::_chunk_cat_out(by_rank, grads, /*dim=*/0, world_size);
    return input;
  }
  for (int rank = 0; rank < world_size; ++rank) {
    std::int64_t offset = rank * total;
    for (std::size_t i = 0; i < params.size(); ++i) {
      params[i]->copy_grad_chunk(grads[i], rank, input.narrow(0, offset, params[i]->chunk_numel()));
      offset += params[i]->chunk_numel();
    }
  }
  return input;
}

void start_reduce_scatter(ReduceScatterResult& result, dist::ProcessGroup& group) {
  if (group.size() == 1) {
    result.output = result.input;
    return;
  }
  result.output = at::empty({result.input.numel() / group.size()}, result.input.options());
  result.work = group.reduce_scatter(result.output, result.input, dist::ReduceOp::kSum);
}

}  // namespace titan::fsdp
