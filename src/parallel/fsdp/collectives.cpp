#include "parallel/fsdp/collectives.h"

#include <ATen/ATen.h>

#include "base/error.h"

namespace titan::fsdp {
namespace {

std::int64_t total_numel(const std::vector<FsdpParam*>& params) {
  std::int64_t total = 0;
  for (const auto* param : params) total += param->chunk_numel();
  return total;
}

}  // namespace

AllGatherResult start_all_gather(const std::vector<FsdpParam*>& params, dist::ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  std::int64_t total = 0;
  for (const auto* param : params) total += param->send_numel();
  const auto dtype = params.front()->param_dtype();
  AllGatherResult result;
  result.output = at::empty({total * group.size()}, params.front()->sharded_padded().options().dtype(dtype));
  auto input = result.output.narrow(0, group.rank() * total, total);
  std::int64_t offset = 0;
  for (const auto* param : params) {
    TITAN_CHECK(param->param_dtype() == dtype, param->fqn() + " has another compute dtype than the rest of its group");
    param->copy_in(input.narrow(0, offset, param->send_numel()));
    offset += param->send_numel();
  }
  result.work = group.all_gather(result.output, input);
  return result;
}

void finish_all_gather(AllGatherResult& result, const std::vector<FsdpParam*>& params, int world_size) {
  const at::NoGradGuard no_grad;
  result.work.wait();
  const std::int64_t total = result.output.numel() / world_size;
  const auto by_rank = result.output.view({world_size, total});
  std::int64_t offset = 0;
  for (auto* param : params) {
    const std::int64_t numel = param->send_numel();
    param->copy_out(by_rank.narrow(1, offset, numel));
    offset += numel;
  }
}

at::Tensor copy_in_gradients(const std::vector<FsdpParam*>& params, const std::vector<at::Tensor>& grads,
                             at::ScalarType reduce_dtype, int world_size) {
  const at::NoGradGuard no_grad;
  const std::int64_t total = total_numel(params);
  auto input = at::empty({world_size * total}, grads.front().options().dtype(reduce_dtype));
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
