#include "metrics/grad_scale_watch.h"

#include <spdlog/spdlog.h>

namespace titan::metrics {

void GradScaleWatch::log(const StepMetrics& metrics) {
  constexpr int kManyRows = 3;
  if (!metrics.grad_scale) return;
  num_small_ = *metrics.grad_scale < 1 ? num_small_ + 1 : 0;
  if (num_small_ != kManyRows) return;
  spdlog::warn(
      "the gradient scale of float16 fell to {} and was below 1 in {} logged steps in a row: most steps are left out. "
      "Use training.mixed_precision_param = \"bfloat16\", or a smaller optimizer.lr",
      *metrics.grad_scale, kManyRows);
}

}  // namespace titan::metrics
