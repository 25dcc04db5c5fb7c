// One step of the optimizer: the gradients of all microbatches, their norm, the clipped update.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "checkpoint/checkpointer.h"
#include "contract/batch.h"
#include "distributed/process_group.h"
#include "optim/grad_scaler.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "train/step/forward_backward.h"
#include "train/step/update_guard.h"

namespace titan::train {

// Input of a step, and what the ranks agreed on when they counted its tokens.
struct StepInput {
  std::vector<Batch> microbatches;       // this rank's batches
  std::int64_t local_valid_tokens = 0;   // labels that count, on this rank
  std::int64_t global_valid_tokens = 0;  // labels that count, on all ranks
  bool stop = false;                     // some rank was asked to stop
  bool save_due = false;                 // checkpoint.interval_minutes have passed on some rank
};

// Results of a step, on the device; they are not read back before a step is logged.
struct StepOutput {
  at::Tensor loss;          // 0-d: this rank's sum of losses over the global number of valid tokens
  std::int64_t labels = 0;  // number of labels that this rank's sum covers
  at::Tensor grad_norm;     // 0-d, of the full gradient, before clipping
  at::Tensor grad_norms;    // [parameters], float32: of each full gradient, before clipping, in the optimizer's order
  at::Tensor grad_scale;    // 0-d: factor that scaled this step's loss; undefined without float16
  at::Tensor left_out;      // 0-d: 1 if a guard vetoed this step's update, else 0; undefined means 0
  double lr = 0;
};

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
    double base_lr;   // optimizer.lr
    double max_norm;  // training.max_norm
  };
  explicit TrainStep(const Parts& parts) : parts_(parts) {}

  // Adds a guard that is asked at every step, in the order added. It must outlive this.
  void add_guard(UpdateGuard& guard) { guards_.push_back(&guard); }
  // Sets a function that sees the gradients of every step, after their norm is known and before the update, which may
  // scale some of them in place.
  void set_before_update(std::function<void(std::int64_t step)> look) { before_update_ = std::move(look); }

  // Runs the step after `finished_steps` finished ones. Collective.
  StepOutput run(const StepInput& input, std::int64_t finished_steps);

 private:
  at::Tensor left_out(std::int64_t step, const StepInput& input, const StepOutput& output) const;
  void update(const StepOutput& output, const at::Tensor& clip_factor);
  void wait_staged();

  Parts parts_;
  std::vector<UpdateGuard*> guards_;
  std::function<void(std::int64_t step)> before_update_;
};

}  // namespace titan::train
