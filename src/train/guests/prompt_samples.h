// Logs how the model continues a few prompts, during training. Training is the same to the last bit with it and
// without.
#pragma once

#include <cstdint>

#include "contract/train_contract.h"
#include "distributed/mesh.h"
#include "facts/prompts.h"

namespace titan::train {

class PromptSamples {
 public:
  // `context`: longest sequence of the model, longer than every prompt. All ranks of `mesh` take part; it and
  // `model` must outlive this.
  PromptSamples(Prompts prompts, std::int64_t max_tokens, std::int64_t context, LanguageModel& model,
                const dist::DeviceMesh& mesh);

  // Continues every prompt greedily, by up to `max_tokens` tokens; rank 0 logs the texts. A second call for the same
  // step does nothing. Every parameter is sharded again on return. Draws no random numbers. Collective.
  void log(std::int64_t step);

 private:
  std::int64_t likeliest(const at::Tensor& logits) const;

  Prompts prompts_;
  std::int64_t last_step_ = 0;
  std::int64_t max_tokens_, context_;
  LanguageModel& model_;
  const dist::DeviceMesh& mesh_;
};

}  // namespace titan::train
