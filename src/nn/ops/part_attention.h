// Attention of some of a row's queries over some of its keys, and the merge of such parts: what context parallelism
// computes on one rank. Nothing here communicates or records a graph; the caller has the autograd node.
//
// Merging follows Liu et al., "Ring Attention with Blockwise Transformers for Near-Infinite Context" (2023,
// arXiv:2310.01889), in the form of PyTorch's context parallelism.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace titan::nn {

// Holds what queries get from the keys that they see: out [B, H, N, E], and the logarithms of the sums of exponentials
// of the scaled scores, float32 [B, H, N].
struct AttentionPart {
  at::Tensor out, sums;
};

struct PartGradients {
  at::Tensor q, k, v;
};

// Attention scaled by 1 / sqrt(E) in which query i sees the first min(S, i + 1 + offset) keys. Offset 0 with as many
// queries as keys is causal attention, S - 1 or more shows every key to every query, and S - N has all keys of earlier
// parts first and the causal square at the end. q [B, H, N, E], k and v [B, K, S, E] with H a multiple of K, of one
// dtype, float32, bfloat16 or float16; no size is 0. `out` has q's dtype. Throws InternalError if offset is negative:
// the first query would see no key. On a GPU, ConfigError if no fused kernel of ATen takes the tensors; the formula's
// memory would grow with N x S.
AttentionPart attend_part(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::int64_t offset);

// Returns the gradients of attend_part(), like q, k and v, in their dtypes. If the queries see the keys of several
// parts, `out` (of q's dtype) and `sums` are those of all parts merged. A part then gives the whole gradients of its
// own keys and values, and a summand of the gradient of q. Throws as attend_part() does.
PartGradients attend_part_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const at::Tensor& out, const at::Tensor& sums,
                                   std::int64_t offset);

// Returns the part of no keys, for merge_parts() to begin with: float32 zeros [B, H, N, E], whose transpose
// [B, N, H, E] is contiguous, and sums of minus infinity.
AttentionPart part_of_no_keys(const at::Tensor& q);

// Adds the keys of `part` to those of `merged`, in place. `merged` is float32 and may be a view of some queries; the
// same keys must not be added twice.
void merge_parts(const AttentionPart& merged, const AttentionPart& part);

}  // namespace titan::nn
