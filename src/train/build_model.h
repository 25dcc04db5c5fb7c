// Builds models, in one way for training, the dry run and generation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "contract/train_contract.h"

namespace titan::train {

// Builds the model of `spec` on the meta device and applies the spec's passes in their order. Without a context it
// applies none: the model is that of one device. `document_end`: see TrainSpec::build_model. Collective over the meshes
// of the context.
std::unique_ptr<LanguageModel> build_on_meta(const TrainSpec& spec, std::optional<std::int64_t> document_end,
                                             const ParallelContext* context);

// Gives the parameters memory in `dtype`, and makes the buffers, both on `device` (parameters that are offloaded stay
// on the host). The weights come later, from draw_weights() or a checkpoint: a start from a checkpoint saves the time
// of drawing, a second for 100 million parameters. Throws InternalError naming a parameter that is still on meta,
// unless `device` is.
void materialize(LanguageModel& model, at::Device device, at::ScalarType dtype);

}  // namespace titan::train
