#include "parallel/fsdp/float8_scales.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>

#include "nn/float8/float8_matrix.h"
#include "parallel/fsdp/fsdp_state.h"

namespace titan::fsdp {
namespace {

std::vector<ParamGroup*> groups_of(nn::Module& module) {
  std::vector<ParamGroup*> groups;
  for (auto* state : FsdpState::all_below(module))
    if (state->group()) groups.push_back(state->group());
  return groups;
}

}  // namespace

std::vector<FsdpParam*> float8_params(const std::vector<FsdpParam*>& params) {
  std::vector<FsdpParam*> found;
  std::ranges::copy_if(params, std::back_inserter(found), &FsdpParam::gathers_in_float8);
  return found;
}

at::Tensor float8_scales(const std::vector<FsdpParam*>& params, dist::ProcessGroup& shards) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> chunks;
  for (const auto* param : params) chunks.push_back(param->sharded_padded());
  auto maxima = at::stack(at::_foreach_norm(chunks, std::numeric_limits<double>::infinity()))
                    .to(params.front()->devices().compute, at::kFloat);
  shards.all_reduce(maxima, dist::ReduceOp::kMax).wait();
  return nn::float8_scale(maxima, at::kFloat8_e4m3fn);
}

void precompute_float8_scales(nn::Module& module) {
  std::map<dist::ProcessGroup*, std::vector<ParamGroup*>> by_shards;
  for (ParamGroup* group : groups_of(module))
    if (!float8_params(group->params()).empty()) by_shards[&group->shard_group()].push_back(group);
  for (const auto& [shards, groups] : by_shards) {
    std::vector<FsdpParam*> params;
    for (const ParamGroup* group : groups)
      std::ranges::copy(float8_params(group->params()), std::back_inserter(params));
    const auto scales = float8_scales(params, *shards);
    std::int64_t first = 0;
    for (ParamGroup* group : groups) {
      const auto count = std::ssize(float8_params(group->params()));
      group->set_float8_scales(scales.narrow(0, first, count));
      first += count;
    }
  }
}

void forget_float8_scales(nn::Module& module) {
  for (ParamGroup* group : groups_of(module)) group->set_float8_scales({});
}

}  // namespace titan::fsdp
