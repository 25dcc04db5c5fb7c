// A batch through the model: to the device, forward to the loss and, for training, backward to the gradients. The train
// step, validation and the dry run all call the model through this interface, so that another way to run it (a pipeline
// of stages, parts of a sequence) is one more implementation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "contract/batch.h"
#include "contract/loss.h"

namespace titan::train {

// What a training minimizes, made from a batch's sum of losses, float32 0-d with its graph.
using Objective = std::function<at::Tensor(const at::Tensor& loss)>;

class ForwardBackward {
 public:
  virtual ~ForwardBackward() = default;

  // This rank's sum of losses over the labels of `batch` that count, float32 0-d on the device: for validation, with
  // autograd off. Collective where the model is sharded: every rank calls it equally often.
  virtual at::Tensor forward(const Batch& batch) = 0;

  // The same sum, detached, after the gradients of objective(sum) were added to those of the parameters. Collective
  // where the model is sharded.
  virtual at::Tensor forward_backward(const Batch& batch, const Objective& objective) = 0;
};

// Labels that count.
std::int64_t count_valid_tokens(const Batch& batch);

// With the whole model on this rank, sharded or not. `model` must outlive the result.
std::unique_ptr<ForwardBackward> make_forward_backward(LanguageModel& model, at::Device device, LossFunction loss);

}  // namespace titan::train
