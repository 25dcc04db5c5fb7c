#include "nn/attention_core.h"

#include "nn/documents.h"
#include "nn/ops/kept_ops.h"

namespace titan::nn {

at::Tensor AttentionCore::forward(const Tensors& inputs) {
  const auto &q = inputs[0], &k = inputs[1], &v = inputs[2];
  if (inputs.size() == 3) return causal_attention(q, k, v);
  return document_attention(q, k, v, inputs[3], inputs.size() > 4 ? inputs[4] : at::Tensor());
}

}  // namespace titan::nn
