// Window of recent losses and gradient norms. It judges whether the next values are spikes: more than a given number
// of standard deviations above the mean, as in OLMo-core's SkipStepOptimizer (https://github.com/allenai/OLMo-core,
// src/olmo_core/optim/skip_step_optimizer.py). All data stays on its device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "base/value.h"

namespace titan::train {

class SpikeWindow {
 public:
  // `size`: number of steps, training.spike_window. `sigma`: training.spike_sigma.
  SpikeWindow(std::int64_t size, double sigma, at::Device device);

  // Rows of the two watched values.
  static constexpr std::int64_t kLoss = 0, kNorm = 1;

  struct Judgement {
    at::Tensor is_spike;  // float32 0-d: 1 or 0
    at::Tensor numbers;   // float64 [2, 3]: value, mean and standard deviation of the steps before, of loss and norm
  };

  // Compares a step's `loss` and `norm`, float32 0-d, with the window, then adds them to it. Nothing is a spike until
  // the window is half full. The standard deviation is at least a thousandth of the mean; otherwise every rise of a
  // constant loss would be a spike. NaN and infinite values are not spikes and are not added. A spike is added as the
  // limit that it exceeds, so that it does not hide the next one, and a level that lasts soon becomes the normal one.
  Judgement judge(const at::Tensor& loss, const at::Tensor& norm);

  // Returns a dict for restore(). The window there may have another size: a smaller one takes the newest steps.
  Value value() const;
  // Throws CheckpointError, naming `what`.
  void restore(const Value& saved, const std::string& what);
  void clear();

 private:
  std::int64_t size_;
  double sigma_;
  at::Tensor places_;  // int64 [size]: 0, 1, ...
  at::Tensor past_;    // float64 [2, size], a ring
  at::Tensor count_;   // int64 0-d: steps that were added; the next one goes to count % size
};

}  // namespace titan::train
