#include "parallel/fsdp/group_facts.h"

#include "parallel/fsdp/fsdp_state.h"

namespace titan::fsdp {

std::vector<GroupFacts> groups_below(nn::Module& root) {
  std::vector<GroupFacts> all;
  for (const auto* state : FsdpState::all_below(root)) {
    if (!state->group()) continue;
    GroupFacts facts{state->group()->name()};
    for (const auto* param : state->group()->params()) {
      const std::int64_t padded = param->chunk_numel() * param->num_shards();
      facts.parameters += param->unsharded_param().defined() ? param->unsharded_param().numel() : padded;
      facts.gathered_bytes += padded * static_cast<std::int64_t>(c10::elementSize(param->gather_dtype()));
    }
    all.push_back(std::move(facts));
  }
  return all;
}

}  // namespace titan::fsdp
