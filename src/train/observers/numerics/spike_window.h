// The losses and norms of the gradients of the last steps, and whether the next ones lie far above them. As OLMo-core's
// SkipStepOptimizer (https://github.com/allenai/OLMo-core, src/olmo_core/optim/skip_step_optimizer.py): more than so many
// standard deviations above the mean. All of it stays on its device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "base/value.h"

namespace titan::train {

class SpikeWindow {
 public:
  // `size`: steps, training.spike_window; `sigma`: training.spike_sigma.
  SpikeWindow(std::int64_t size, double sigma, at::Device device);

  // The two that are watched, in the order of rows below.
  static constexpr std::int64_t kLoss = 0, kNorm = 1;

  struct Judgement {
    at::Tensor is_spike;  // float32 0-d: 1 or 0
    at::Tensor numbers;   // float64 [2, 3]: value, mean and standard deviation of the steps before, of loss and norm
  };

  // Compares a step's `loss` and `norm`, float32 0-d, with the window, and takes them into it. The first
  // half of a window says too little: nothing is a spike before. A standard deviation counts for at least a thousandth of
  // the mean, as a loss that stands still would make a spike of every rise. What is NaN or infinite is not taken in, and
  // is not a spike. A spike is taken in as the limit that it exceeds: it does not hide the next one, and a level that
  // stays is soon the usual one.
  Judgement judge(const at::Tensor& loss, const at::Tensor& norm);

  // A dict that restore() takes, whatever size it has there: of a larger one the newest steps.
  Value value() const;
  // Throws CheckpointError, naming `what`.
  void restore(const Value& saved, const std::string& what);
  void clear();

 private:
  std::int64_t size_;
  double sigma_;
  at::Tensor places_;  // int64 [size]: 0, 1, ...
  at::Tensor past_;    // float64 [2, size], a ring
  at::Tensor count_;   // int64 0-d: steps that were taken in; the next one goes to count % size
};

}  // namespace titan::train
