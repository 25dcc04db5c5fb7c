// Calls a model whose stages several ranks have, from its tokens to its logits: for generation and scores.
#pragma once

#include <memory>

#include "contract/model.h"
#include "distributed/process_group.h"
#include "pipeline/pipeline_schedule.h"

namespace titan::train {

// Holds what a call of all stages needs besides this rank's stages.
struct StagedCall {
  std::vector<int> rank_of_stage;  // of the group
  dist::ProcessGroup& group;       // the ranks that have the stages
  at::Device device;
  std::int64_t dim = 0;         // of hidden states
  std::int64_t tokens_per = 1;  // a rank's hidden states between blocks are those of one of so many parts of the tokens
  at::ScalarType dtype;         // of hidden states
};

// Returns a model that runs the stages one after the other and gives every rank what the last one returns. `stages`:
// this rank's, which must outlive it. Autograd must be off. Each call is collective over the group, whose ranks call
// with the same inputs, without a stage. output() is a module that is never called on ranks without the last stage.
std::unique_ptr<LanguageModel> make_staged_model(LanguageModel& stages, StagedCall call);

}  // namespace titan::train
