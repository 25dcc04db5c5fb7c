// The part of attention between the projections, as a module. What replaces it (nn::Module::replace_child), wraps it or
// hooks into it sees queries, keys and values in every model that calls it.
#pragma once

#include "nn/module.h"

namespace titan::nn {

// Runs causal_attention (nn/ops/kept_ops.h): q [B, H, T, E], k and v [B, K, T, E], H a multiple of K -> [B, H, T, E].
// With the documents' lengths as a fourth input, and optionally their bounds as a fifth, runs document_attention
// (nn/documents.h). No parameters.
class AttentionCore : public Module {
 public:
  at::Tensor forward(const Tensors& inputs) override;
};

}  // namespace titan::nn
