// Activation checkpointing: a module's activations are dropped after its forward and computed again in backward.
#pragma once

#include "nn/module.h"

namespace titan::nn {

// From now on the module keeps its inputs only, and recomputes in backward. Values and gradients are those without it.
// The sharding hooks stay outside: one unshard in backward serves the recomputation and the gradients.
void checkpoint_activations(Module& module);

}  // namespace titan::nn
