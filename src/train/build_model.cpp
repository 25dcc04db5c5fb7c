#include "train/build_model.h"

#include <ATen/ATen.h>

#include <utility>

#include "base/error.h"
#include "distributed/config_dtype.h"
#include "nn/init.h"
#include "parallel/context/split_attention.h"
#include "parallel/fsdp/fully_shard.h"
#include "train/split_rows.h"

namespace titan::train {

BuiltModel build_on_meta(const TrainSpec& spec, std::optional<std::int64_t> document_end,
                         const ParallelContext& context, at::Device device) {
  auto model = spec.build_model(document_end);
  for (const ModelPass& pass : spec.passes) pass.apply(*model, context);
  auto forward_backward = make_forward_backward(*model, device, spec.loss);
  const auto& parallelism = context.job.parallelism;
  if (context.splits_rows())
    forward_backward =
        make_split_rows(std::move(forward_backward), *model,
                        parallel::row_sharing(context.meshes.cp.group(), parallelism.context_parallel_load_balancer,
                                              parallelism.context_parallel_rotate_method));
  return {std::move(model), std::move(forward_backward)};
}

void materialize(LanguageModel& model, at::Device device, const config::JobConfig& config) {
  materialize(model, device, dist::dtype_of(config.training.dtype),
              dist::dtype_of(config.lora.base_dtype.value_or(config.training.dtype)));
}

void materialize(LanguageModel& model, at::Device device, at::ScalarType dtype, at::ScalarType frozen_dtype) {
  fsdp::to_empty(model, device, dtype, frozen_dtype);
  const at::NoGradGuard no_grad;
  nn::BuffersOnly buffers;
  model.init_weights(buffers, device);
  for (const auto& parameter : model.named_parameters())
    TITAN_CHECK(device.is_meta() || !parameter.tensor().is_meta(),
                parameter.fqn + " is still on the meta device after initialization");
}

}  // namespace titan::train
