// Builds parallel models, in one way for training and the dry run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "contract/train_contract.h"
#include "train/step/forward_backward.h"
#include "train/step/run_parameters.h"

namespace titan::train {

// A model, and what runs batches through it.
struct BuiltModel {
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<ForwardBackward> forward_backward;
  // Runs the whole model, with the ranks that have the other stages. Null if this rank has all of it.
  std::unique_ptr<LanguageModel> all_stages;
  std::vector<ParameterSlot> slots;  // of the whole model, of which this rank may have some stages
};

// Makes the meshes of a job and connects the accelerators of all groups whose tensors are on the device. Collective
// over the world.
dist::Meshes connect_meshes(dist::World& world, const dist::ParallelDims& dims, const config::Training& training);

// Builds the model of `spec` on the meta device and applies the spec's passes in their order. Its batches go to
// `device`. `document_end`: see TrainSpec::build_model. Collective over the meshes of the context.
BuiltModel build_on_meta(const TrainSpec& spec, std::optional<std::int64_t> document_end,
                         const ParallelContext& context, at::Device device);

// Gives the parameters memory in `dtype`, or in `frozen_dtype` if they are not trained, and makes the buffers, both on
// `device` (parameters that are offloaded stay on the host). The weights come later, from draw_weights() or a
// checkpoint: a start from a checkpoint saves the time of drawing, a second for 100 million parameters. Throws
// InternalError naming a parameter that is still on meta, unless `device` is.
void materialize(LanguageModel& model, at::Device device, at::ScalarType dtype, at::ScalarType frozen_dtype);

// Returns the dtypes of a job's parameters: training.dtype and lora.base_dtype.
StoredDtypes stored_dtypes(const config::JobConfig& config);

// Same with these.
void materialize(LanguageModel& model, at::Device device, const config::JobConfig& config);

}  // namespace titan::train
