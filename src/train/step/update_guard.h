// Who may have the update of a step left out: the run_parts list adds them to the TrainStep, which asks them between the
// norm of the gradients and the optimizer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace titan::train {

struct StepInput;
struct StepOutput;

class UpdateGuard {
 public:
  virtual ~UpdateGuard() = default;

  // Of step number `step` (1-based), whose loss and norm `output` has; the gradients lie in the parameters, and the
  // weights are those before the update. Float32 0-d on the device of the norm: 1 where neither weights nor the
  // optimizer's state may change, else 0, the same on every rank; undefined means 0. Called on every rank at every
  // step: it may be collective, and must not read from a device what nobody needs on the host.
  virtual at::Tensor leaves_out(std::int64_t step, const StepInput& input, const StepOutput& output) = 0;
};

}  // namespace titan::train
