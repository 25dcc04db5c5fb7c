// Activation checkpointing: a module's activations are dropped after its forward and computed again in backward.
#pragma once

#include <functional>

#include "nn/module.h"
#include "nn/ops/op_trace.h"

namespace titan::nn {

struct CheckpointOptions {
  // Creates the policy of one forward, which may count. Null: nothing is kept, everything is recomputed. Linear layers
  // and causal_attention ask the policy (nn/ops/kept_ops.h); all other operators are always recomputed.
  std::function<KeepPolicy()> policy = {};
  // The recomputation draws the random numbers of the forward (on the CPU and on the inputs' devices); the caller's
  // random state is left unchanged.
  bool preserve_rng_state = true;
  // Compares shape, dtype and device of the outputs of linear layers, attention and the module itself with the
  // forward's.
  bool determinism_check = true;
  // An error of that comparison lists these operators, for forward and recomputation.
  bool debug = false;
};

// Makes the module keep only its inputs and what the policy says, and recompute the rest in backward. Values and
// gradients stay the same, bit by bit. The sharding hooks of the module stay outside: one unshard in backward serves
// the recomputation and the gradients; hooks of modules below it run again. A checkpointed module below another is part
// of that one. Backward throws InternalError if the recomputation differs from the forward.
void checkpoint_activations(Module& module, CheckpointOptions options = {});

// TorchTitan's policy "op": keeps attention and, counting from 1, the odd linear layers. Those whose weight has one of
// `always_recomputed`'s shapes are recomputed and not counted.
KeepPolicy keep_every_second_linear(std::vector<std::vector<std::int64_t>> always_recomputed);

}  // namespace titan::nn
