// The loss function, as the train loop and validation call it. A loss that is computed in another way
// (sharded over the vocabulary, in chunks, fused) is another function of this type: TrainSpec::loss.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "contract/model.h"

namespace titan {

// Returns the sum of the losses of `labels` int64 [B, T] (on the model's device), which follow `tokens` int64 [B, T]
// (on that device or the host): float32 0-d on the device, with a graph if autograd is on. Labels of
// nn::kIgnoreIndex do not count; the caller divides by the number of the others. Collective if the model is sharded.
using LossFunction =
    std::function<at::Tensor(LanguageModel& model, const at::Tensor& tokens, const at::Tensor& labels)>;

// The model's own loss, the sum of cross entropies. It need not hold all logits in memory at once.
inline at::Tensor cross_entropy_of_model(LanguageModel& model, const at::Tensor& tokens, const at::Tensor& labels) {
  return model(tokens, labels);
}

}  // namespace titan
