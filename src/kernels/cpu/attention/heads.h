// Attention of the query heads that share one key and one value head, on one thread, computed in float32. A query sees
// all keys up to one: causal attention, of a whole row or of a part of its queries and keys.
//
// heads.cpp is compiled once per instruction set, into a namespace of its own; best_attention() picks one at run time.
// No torch here: code compiled for newer processors must not share inline functions with the rest of the program.
//
// Unlike FlashAttention (Dao et al. 2022) it is not tiled over keys: a few rows of scores fit the L2 cache even for
// long sequences, so the softmax is the plain one, in three passes. As in FlashAttention, the backward recomputes the
// scores from the saved logarithms of the sums.
#pragma once

#include <cstdint>

#include "kernels/portable/half_bits.h"

namespace titan::kernels {

// Rows of one head; the elements of a row are contiguous.
template <typename T>
struct Rows {
  T* data;
  std::int64_t stride;  // elements from one row to the next
};

// Query i sees the first min(keys, i + 1 + offset) keys. Causal attention has as many queries as keys and offset 0.
struct HeadsShape {
  std::int64_t queries, keys;
  std::int64_t offset;    // from 0 to `keys`: how many keys the first query sees besides its own
  std::int64_t head_dim;  // a multiple of AttentionKernels::head_dim_unit
  float scale;            // multiplies the dot products of queries and keys
};

// Tensors of one query head: q and out [queries, head_dim], k and v [keys, head_dim], and sums [queries], the logarithm
// of the sum of exponentials of a row's scaled scores. The backward takes out and sums of more keys than these, if the
// keys are a part of those that a query sees.
template <typename T>
struct HeadTensors {
  Rows<const T> q, k, v;
  Rows<T> out;
  Rows<float> sums;  // one element per row
};

template <typename T>
struct HeadGradients {
  Rows<const T> out;
  Rows<T> q;
};

struct AttentionKernels {
  const char* name;
  std::int64_t head_dim_unit;

  // Floats of working memory for one call.
  std::int64_t (*workspace)(const HeadsShape& shape);

  // `heads` are `num_heads` query heads with the same k and v.
  void (*forward_float)(const HeadsShape&, const HeadTensors<float>* heads, std::int64_t num_heads, float* workspace);
  void (*forward_bfloat16)(const HeadsShape&, const HeadTensors<BFloat16Bits>* heads, std::int64_t num_heads,
                           float* workspace);
  void (*forward_float16)(const HeadsShape&, const HeadTensors<Float16Bits>* heads, std::int64_t num_heads,
                          float* workspace);
  // k_grad and v_grad are sums over the heads.
  void (*backward_float)(const HeadsShape&, const HeadTensors<float>* heads, const HeadGradients<float>* grads,
                         std::int64_t num_heads, Rows<float> k_grad, Rows<float> v_grad, float* workspace);
  void (*backward_bfloat16)(const HeadsShape&, const HeadTensors<BFloat16Bits>* heads,
                            const HeadGradients<BFloat16Bits>* grads, std::int64_t num_heads, Rows<BFloat16Bits> k_grad,
                            Rows<BFloat16Bits> v_grad, float* workspace);
  void (*backward_float16)(const HeadsShape&, const HeadTensors<Float16Bits>* heads,
                           const HeadGradients<Float16Bits>* grads, std::int64_t num_heads, Rows<Float16Bits> k_grad,
                           Rows<Float16Bits> v_grad, float* workspace);
};

// Queries that see all keys: those of one new token, in the heads that share one key and one value head.
struct CachedShape {
  std::int64_t queries, keys;
  std::int64_t head_dim;  // a multiple of head_dim_unit
  float scale;
};

// Attention of CachedShape on one thread: q and out are [queries, head_dim], k and v [keys, head_dim], sums [queries].
struct CachedAttentionKernels {
  const char* name;
  std::int64_t head_dim_unit;
  std::int64_t (*workspace)(const CachedShape& shape);  // floats
  void (*attend_float)(const CachedShape&, const HeadTensors<float>&, float* workspace);
  void (*attend_bfloat16)(const CachedShape&, const HeadTensors<BFloat16Bits>&, float* workspace);
  void (*attend_float16)(const CachedShape&, const HeadTensors<Float16Bits>&, float* workspace);
};

// Builds for any processor, for AVX2 with FMA, for AVX-512, and for AVX-512 with bfloat16 multiply-adds in vectors or
// in tiles. The last two round weights and score gradients to bfloat16 and take subnormal numbers for 0
// (bfloat16_heads.cpp). Call only those whose instructions this machine has.
namespace plain {
extern const AttentionKernels kAttention;
extern const CachedAttentionKernels kCachedAttention;
}  // namespace plain
namespace avx2 {
extern const AttentionKernels kAttention;
extern const CachedAttentionKernels kCachedAttention;
}  // namespace avx2
namespace avx512 {
extern const AttentionKernels kAttention;
extern const CachedAttentionKernels kCachedAttention;
}  // namespace avx512
namespace avx512bf16 {
extern const AttentionKernels kAttention;
}
namespace amx {
extern const AttentionKernels kAttention;
}

}  // namespace titan::kernels
