// Loss scaling for float16 (torch.amp.GradScaler and FSDP's ShardedGradScaler): the loss is
// multiplied so that small gradients do not vanish, the gradients are divided again, and a step
// with an infinite or NaN gradient on any rank is skipped on all ranks.
//
//   backward(scaler.scale(loss));            // every microbatch
//   scaler.unscale(grads, world);            // once per step, before clipping
//   optimizer.step({.found_inf = scaler.found_inf()});
//   scaler.update();
//
// Everything stays on the device; only state() waits for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "distributed/process_group.h"

namespace titan::optim {

struct GradScalerOptions {
  double init_scale = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;  // steps in a row without a skipped one, after which the scale grows
};

class GradScaler {
 public:
  explicit GradScaler(at::Device device, const GradScalerOptions& options = {});

  at::Tensor scale(const at::Tensor& loss) const;
  // Divides the gradients (this rank's shards, any float dtype; undefined ones are skipped) by the scale, in place,
  // and records whether any rank has an infinity or a NaN. Collective over `world`: all ranks that step together.
  void unscale(const std::vector<at::Tensor>& grads, dist::ProcessGroup& world);
  // 1 if the step must be skipped, else 0. float32 0-d, the same on every rank.
  const at::Tensor& found_inf() const { return found_inf_; }
  // Call after the optimizer: the scale backs off if the step was skipped, and grows after growth_interval other steps.
  void update();

  struct State {
    double scale;
    std::int64_t growth_tracker;  // steps since the scale changed
  };
  State state() const;  // reads from the device
  void set_state(const State& state);
  // Returns a copy of the scale, float32 0-d.
  at::Tensor current_scale() const { return scale_.clone(); }

 private:
  GradScalerOptions options_;
  at::Tensor scale_;           // float32 0-d
  at::Tensor growth_tracker_;  // int32 0-d
  at::Tensor found_inf_;
};

}  // namespace titan::optim
