#include "train/loss.h"

#include <ATen/ATen.h>

namespace titan::train {

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& labels) {
  return at::cross_entropy_loss(logits.flatten(0, 1).to(at::kFloat), labels.flatten(), /*weight=*/{},
                                at::Reduction::Sum, kIgnoreIndex);
}

}  // namespace titan::train
