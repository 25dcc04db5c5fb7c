// An UpdateGuard can veto the optimizer update of a step. run_parts.cpp adds the guards to the TrainStep, which asks
// them between the norm of the gradients and the optimizer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace titan::train {

struct StepInput;
struct StepOutput;

class UpdateGuard {
 public:
  virtual ~UpdateGuard() = default;

  // Returns 1 if step number `step` (1-based) must change neither weights nor optimizer state, else 0: float32 0-d on
  // the device of the norm, the same on every rank; undefined means 0. `output` has the step's loss and norm, the
  // parameters hold the gradients, and the weights are those before the update. Called on every rank at every step: it
  // may be collective, and must not read values from a device without need.
  virtual at::Tensor leaves_out(std::int64_t step, const StepInput& input, const StepOutput& output) = 0;
};

}  // namespace titan::train
