#include "train/observers/divergence_watch.h"

#include <ATen/core/Tensor.h>
#include <spdlog/spdlog.h>

#include <cmath>

#include "base/log.h"

namespace titan::train {

// The norm is that of all ranks, so all decide alike.
std::optional<RunEnd> DivergenceWatch::after_step(const FinishedStep& step) {
  if (has_warned_ || !is_read(step)) return std::nullopt;
  const auto norm = step.output.grad_norm.item<float>();
  if (std::isfinite(norm)) return std::nullopt;
  if (config_.training.on_nan == "stop") return stop(step, norm);
  has_warned_ = true;
  if (speaks_for_all())
    spdlog::warn(
        "step {}: the norm of the gradients is {}, so the weights are no use from here on; training goes on and saves "
        "them, as training.on_nan = \"warn\" asks",
        step.number, norm);
  return std::nullopt;
}

// Reading the norm makes a GPU's queue of work run dry: there only where the step is read, or kept, anyway.
bool DivergenceWatch::is_read(const FinishedStep& step) const {
  return norm_is_on_host_ || log_.is_logged(step.number) || step.input.save_due || step.input.stop ||
         checkpointer_.should_save(static_cast<int>(step.number), static_cast<int>(config_.training.steps));
}

RunEnd DivergenceWatch::stop(const FinishedStep& step, float norm) {
  if (!log_.is_logged(step.number)) log_.log(step);
  checkpointer_.finish();  // its lines come before the one that ends the run
  if (speaks_for_all())
    spdlog::error(
        "training has diverged: at step {} the norm of the gradients is {}, with optimizer.lr = {} and a learning rate "
        "of "
        "{:.3g}. It stops here, and checkpoints are of steps before. Try a smaller optimizer.lr, more "
        "lr_scheduler.warmup_steps or a smaller training.max_norm; training.on_nan = \"warn\" goes on all the same",
        step.number, norm, config_.optimizer.lr, step.output.lr);
  return RunEnd::kDiverged;
}

}  // namespace titan::train
