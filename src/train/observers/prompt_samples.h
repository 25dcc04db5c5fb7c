// What the model writes after a few prompts, printed while it is trained. Training is the same to the last bit with it
// and without.
#pragma once

#include <cstdint>

#include "contract/train_contract.h"
#include "distributed/mesh.h"
#include "facts/prompts.h"

namespace titan::train {

class PromptSamples {
 public:
  // `context`: the longest sequence of the model, longer than every prompt. `model` and `batch_mesh`, whose ranks all
  // take part, must outlive this.
  PromptSamples(Prompts prompts, std::int64_t max_tokens, std::int64_t context, LanguageModel& model,
                const dist::DeviceMesh& batch_mesh);

  // Continues every prompt greedily, by up to `max_tokens` tokens; rank 0 logs the texts. Once a step: a second call
  // for the same one does nothing. Every parameter is sharded
  // again on return. No random number is drawn. Collective.
  void log(std::int64_t step);

 private:
  std::int64_t likeliest(const at::Tensor& logits) const;

  Prompts prompts_;
  std::int64_t last_step_ = 0;
  std::int64_t max_tokens_, context_;
  LanguageModel& model_;
  const dist::DeviceMesh& batch_mesh_;
};

}  // namespace titan::train
