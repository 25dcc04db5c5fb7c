// The loss function, as the train loop and validation call it. A loss that is computed in another way
// (sharded over the vocabulary, in chunks, fused) is another function of this type: TrainSpec::loss.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "contract/batch.h"
#include "contract/model.h"

namespace titan {

// Returns the sum of the losses of a batch's labels, which are on the model's device here, as its tokens may be:
// float32 0-d on the device, with a graph if autograd is on. Labels of kIgnoredLabel do not count; the others count
// once each, or as Batch::labels_of_sample says. The caller divides by their number. Collective if the model is
// sharded.
using LossFunction = std::function<at::Tensor(LanguageModel& model, const Batch& batch)>;

// The model's own loss, the sum of cross entropies. It need not hold all logits in memory at once.
inline at::Tensor cross_entropy_of_model(LanguageModel& model, const Batch& batch) {
  return model(batch.tokens, batch.labels, batch.positions, batch.documents, batch.labels_of_sample, batch.stage);
}

}  // namespace titan
