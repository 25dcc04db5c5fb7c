#include "train/build_model.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "nn/init.h"
#include "parallel/fsdp/fully_shard.h"

namespace titan::train {

std::unique_ptr<LanguageModel> build_on_meta(const TrainSpec& spec, std::optional<std::int64_t> document_end,
                                             const ParallelContext* context) {
  auto model = spec.build_model(document_end);
  if (!context) return model;
  for (const ModelPass& pass : spec.passes) pass.apply(*model, *context);
  return model;
}

void materialize(LanguageModel& model, at::Device device, at::ScalarType dtype) {
  fsdp::to_empty(model, device, dtype);
  const at::NoGradGuard no_grad;
  nn::BuffersOnly buffers;
  model.init_weights(buffers, device);
  for (const auto& parameter : model.named_parameters())
    TITAN_CHECK(device.is_meta() || !parameter.tensor().is_meta(),
                parameter.fqn + " is still on the meta device after initialization");
}

}  // namespace titan::train
