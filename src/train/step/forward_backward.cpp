#include "train/step/forward_backward.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <utility>

#include "base/process/step_work.h"
#include "nn/ops/cross_entropy.h"
#include "trace/named_range.h"

namespace titan::train {
namespace {

static_assert(kIgnoredLabel == nn::kIgnoreIndex);

class WholeModel : public ForwardBackward {
 public:
  WholeModel(LanguageModel& model, at::Device device, LossFunction loss)
      : model_(model), device_(device), loss_(std::move(loss)) {}

  LossSum forward(const Batch& batch) override {
    const NamedRange range([] { return "forward"; });
    const auto labels = batch.labels.to(device_, /*non_blocking=*/true);
    return {loss_(model_, {batch.tokens, labels, batch.documents, batch.labels_of_sample, batch.positions}),
            count_valid_tokens(batch)};
  }

  LossSum forward_backward(const Batch& batch, const Objective& objective) override {
    const LossSum sum = forward(batch);
    const NamedRange range([] { return "backward"; });
    step_work().begin_backward();
    torch::autograd::backward({objective(sum.loss)}, {});
    return {sum.loss.detach(), sum.labels};
  }

 private:
  LanguageModel& model_;
  at::Device device_;
  LossFunction loss_;
};

}  // namespace

std::int64_t count_valid_tokens(const Batch& batch) {
  if (batch.labels.is_meta()) return 0;
  const auto counts = batch.labels.ne(nn::kIgnoreIndex);
  if (!batch.labels_of_sample.defined()) return counts.sum().item<std::int64_t>();
  // A row has all labels of its conversations, so that their parts add up to whole numbers.
  return std::llround(batch.labels_of_sample.masked_select(counts).to(at::kDouble).reciprocal().sum().item<double>());
}

std::unique_ptr<ForwardBackward> make_forward_backward(LanguageModel& model, at::Device device, LossFunction loss) {
  return std::make_unique<WholeModel>(model, device, std::move(loss));
}

}  // namespace titan::train
