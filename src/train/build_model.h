// Builds parallel models, in one way for training and the dry run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "contract/train_contract.h"
#include "train/step/forward_backward.h"

namespace titan::train {

// A model, and what runs batches through it. A pipeline would make another ForwardBackward.
struct BuiltModel {
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<ForwardBackward> forward_backward;
};

// Builds the model of `spec` on the meta device and applies the spec's passes in their order. Its batches go to
// `device`. `document_end`: see TrainSpec::build_model. Collective over the meshes of the context.
BuiltModel build_on_meta(const TrainSpec& spec, std::optional<std::int64_t> document_end,
                         const ParallelContext& context, at::Device device);

// Gives the parameters memory in `dtype`, or in `frozen_dtype` if they are not trained, and makes the buffers, both on
// `device` (parameters that are offloaded stay on the host). The weights come later, from draw_weights() or a
// checkpoint: a start from a checkpoint saves the time of drawing, a second for 100 million parameters. Throws
// InternalError naming a parameter that is still on meta, unless `device` is.
void materialize(LanguageModel& model, at::Device device, at::ScalarType dtype, at::ScalarType frozen_dtype);

// Same with the dtypes of a job: training.dtype and lora.base_dtype.
void materialize(LanguageModel& model, at::Device device, const config::JobConfig& config);

}  // namespace titan::train
