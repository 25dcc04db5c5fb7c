// Applies [quantize.linear.float8] to a model: linear layers whose matmuls are in float8 (nn/float8/float8_linear.h).
#pragma once

#include "contract/train_contract.h"

namespace titan::models {

// Puts float8 layers in place of linear layers if model.converters asks for it: all of them but the output projection,
// those that filter_fqns names, and those with a dimension that is not a multiple of 16. Models that generate keep
// their layers. The model is on the meta device. Throws ConfigError if no layer is left to convert.
void use_float8(LanguageModel& model, const ParallelContext& context);

}  // namespace titan::models
