// One step of the optimizer: the gradients of all microbatches, their norm, the clipped update.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "checkpoint/checkpointer.h"
#include "distributed/process_group.h"
#include "optim/grad_scaler.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "train/step/forward_backward.h"
#include "train/step/step_guest.h"

namespace titan::train {

class TrainStep {
 public:
  // All of them must outlive the TrainStep.
  struct Parts {
    ForwardBackward& forward_backward;
    optim::Optimizer& optimizer;
    const optim::LrSchedule& schedule;
    optim::GradScaler* grad_scaler;  // null without float16
    checkpoint::Checkpointer& checkpointer;
    dist::ProcessGroup& world;
    optim::ModelParts stages;  // of a pipeline
    double base_lr;            // optimizer.lr
    double max_norm;           // training.max_norm
  };
  explicit TrainStep(const Parts& parts) : parts_(parts) {}

  // Runs the step after `finished_steps` finished ones. Each of the guests sees it before the update. Collective.
  StepOutput run(const StepInput& input, std::int64_t finished_steps, const StepGuests& guests);

 private:
  void update(const StepOutput& output, const at::Tensor& clip_factor);
  void wait_staged();

  Parts parts_;
};

}  // namespace titan::train
