// While alive, keeps the model in eval mode and autograd off.
#pragma once

#include <ATen/core/grad_mode.h>

#include "contract/train_contract.h"

namespace titan::train {

class Evaluation {
 public:
  explicit Evaluation(LanguageModel& model) : model_(model) { model_.train(false); }
  ~Evaluation() { model_.train(true); }
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;

 private:
  LanguageModel& model_;
  at::NoGradGuard no_grad_;
};

}  // namespace titan::train
