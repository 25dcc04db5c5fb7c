// Activation checkpointing: a module's activations are dropped after its forward and computed again in backward.
#pragma once

#include <functional>

#include "nn/module.h"
#include "nn/ops/op_trace.h"

namespace titan::nn {

struct CheckpointOptions {
  // Makes the policy of one forward, which may count; null: nothing is kept, everything is recomputed. Linear layers
  // and causal_attention ask it (nn/ops/kept_ops.h); all other operators are always recomputed.
  std::function<KeepPolicy()> policy = {};
  // The recomputation draws the random numbers of the forward (on the CPU and on the inputs' devices), and those that
  // others draw are as if there were none.
  bool preserve_rng_state = true;
  // Compares shape, dtype and device of what linear layers, attention and the module itself put out with the forward's.
  bool determinism_check = true;
  // An error of that comparison lists these operators, of forward and recomputation.
  bool debug = false;
};

// From now on the module keeps its inputs, and what the policy says, and recomputes the rest in backward. Values and
// gradients are those without it, bit by bit. The sharding hooks of the module stay outside: one unshard in backward
// serves the recomputation and the gradients; those of modules below it run again. A checkpointed module below another
// is a part of that one. Throws InternalError in backward when the recomputation differs from the forward.
void checkpoint_activations(Module& module, CheckpointOptions options = {});

// TorchTitan's policy "op": keeps attention and, counting from 1, the odd linear layers. Those whose weight has one of
// `always_recomputed`'s shapes are recomputed and not counted.
KeepPolicy keep_every_second_linear(std::vector<std::vector<std::int64_t>> always_recomputed);

}  // namespace titan::nn
