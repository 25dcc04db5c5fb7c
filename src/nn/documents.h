// Attention within the documents of packed rows.
#pragma once

#include <ATen/core/Tensor.h>

namespace titan::nn {

// The lengths of the documents in tokens int64 [B, T], row after row: int64 [documents] on the host, their sum is B *
// T. A document ends with the token `end`, which belongs to it, and with its row. Waits for tokens of a device.
at::Tensor document_lengths(const at::Tensor& tokens, std::int64_t end);

// Where the documents begin and the last one ends, int32 [documents + 1] on `device`: what one kernel for all of them
// reads. On an accelerator; the copy is queued on its current stream.
at::Tensor document_bounds(const at::Tensor& lengths, at::Device device);

// As causal_attention (nn/ops/kept_ops.h), but a token attends to its own document alone: [B, H, T, E]. One attention a
// document, so the cost grows with the squares of their lengths, not with T squared; each of them can be kept. With
// `bounds`, and where there is flash attention (attends_within_documents), one kernel for all. Rows that hold one
// document each are one causal_attention.
at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& lengths,
                              const at::Tensor& bounds = {});

}  // namespace titan::nn
