// Attention within the documents of packed rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace titan::nn {

// Returns the lengths of the documents in tokens int64 [B, T], row by row: int64 [documents] on the host, with sum B *
// T. A document ends with its row, and where `documents` int64 [B, T] changes. Where that is undefined or negative, it
// ends with the token `end`, which belongs to it. `documents` may be longer than the tokens if none is negative: then
// the tokens are a part of each row, and the lengths are those of whole rows. Waits for the device of both tensors,
// which is the same.
at::Tensor document_lengths(const at::Tensor& tokens, std::optional<std::int64_t> end,
                            const at::Tensor& documents = {});

// Returns the number of each token's document, int64 [B, T] on the host, all of them known: documents of a row are
// numbered in its order. Arguments as in document_lengths(), with documents of the tokens' own size.
at::Tensor known_documents(const at::Tensor& tokens, std::optional<std::int64_t> end, const at::Tensor& documents);

// Returns where the documents begin and the last one ends, int32 [documents + 1] on `device`, an accelerator, for one
// kernel that handles all of them. The copy is queued on the device's current stream.
at::Tensor document_bounds(const at::Tensor& lengths, at::Device device);

// Like causal_attention (nn/ops/kept_ops.h), but a token attends only to its own document. Returns [B, H, T, E]. Runs
// one attention per document, so the cost grows with the squares of their lengths, not with T squared; each can be
// kept. With `bounds` and flash attention (attends_within_documents), one kernel handles all documents. If every row
// holds one document, one causal_attention handles all rows.
at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& lengths,
                              const at::Tensor& bounds = {});

}  // namespace titan::nn
