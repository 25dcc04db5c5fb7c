// Runs a batch through the model: to the device, forward to the loss and, for training, backward to the gradients. The
// train step, validation and the dry run all use this interface, so another way to run the model (a pipeline of
// stages, parts of a sequence) is one more implementation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "contract/batch.h"
#include "contract/loss.h"

namespace titan::train {

// Maps a batch's sum of losses, float32 0-d with its graph, to the value that training minimizes.
using Objective = std::function<at::Tensor(const at::Tensor& loss)>;

// The part of a batch's loss that a rank has computed. All ranks together cover each label of the batch once.
struct LossSum {
  at::Tensor loss;  // float32 0-d on the device: the sum over the labels that this rank has computed
  // The number of these labels; labels that do not count are left out. Ranks that share rows have a part of the loss
  // each, and one of them counts the labels.
  std::int64_t labels = 0;
};

class ForwardBackward {
 public:
  virtual ~ForwardBackward() = default;

  // Returns the number of parts in which a batch goes through the model, one after the other.
  virtual std::int64_t num_parts() const { return 1; }

  // For validation, with autograd off. Collective if the model is sharded: every rank calls it equally often.
  virtual LossSum forward(const Batch& batch) = 0;

  // Adds the gradients of objective(loss) to those of the parameters. Returns what forward() returns, detached.
  // Collective if the model is sharded.
  virtual LossSum forward_backward(const Batch& batch, const Objective& objective) = 0;
};

// Returns the number of labels of a batch that count, or with Batch::labels_of_sample that of its conversations: what
// its sum of losses is divided by. 0 on the meta device.
std::int64_t count_valid_tokens(const Batch& batch);

// Returns the implementation that runs the full model on this rank, sharded or not. `model` must outlive it.
std::unique_ptr<ForwardBackward> make_forward_backward(LanguageModel& model, at::Device device, LossFunction loss);

}  // namespace titan::train
