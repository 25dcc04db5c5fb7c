// Loss scaling for float16 (torch.amp.GradScaler and FSDP's ShardedGradScaler): the loss is multiplied so that small
// gradients do not vanish, the gradients are divided again, and a step with an infinite or NaN gradient on any rank is
// left out on all of them.
//
//   backward(scaler.scale(loss));            // every microbatch
//   scaler.unscale(grads, world);            // once a step, before clipping
//   optimizer.step({.found_inf = scaler.found_inf()});
//   scaler.update();
//
// Everything stays on the device; nothing here waits for it but state().
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
  std::int64_t growth_interval = 2000;  // steps without a skipped one, after which the scale grows
};

class GradScaler {
 public:
  explicit GradScaler(at::Device device, const GradScalerOptions& options = {});

  at::Tensor scale(const at::Tensor& loss) const;
  // Divides the gradients (this rank's shards, any float dtype; undefined ones are passed over) by the scale, in place,
  // and notes whether some rank's has an infinity or a NaN. Collective over `world`: all ranks that step together.
  void unscale(const std::vector<at::Tensor>& grads, dist::ProcessGroup& world);
  // 1 where the step must be left out, else 0. float32 0-d, the same on every rank.
  const at::Tensor& found_inf() const { return found_inf_; }
  // After the optimizer: the scale backs off where the step was left out, and grows after growth_interval others.
  void update();

  struct State {
    double scale;
    std::int64_t growth_tracker;  // steps since the scale changed
  };
  State state() const;  // reads from the device
  void set_state(const State& state);
  // Float32 0-d, a copy.
  at::Tensor current_scale() const { return scale_.clone(); }

 private:
  GradScalerOptions options_;
  at::Tensor scale_;           // float32 0-d
  at::Tensor growth_tracker_;  // int32 0-d
  at::Tensor found_inf_;
};

}  // namespace titan::optim
