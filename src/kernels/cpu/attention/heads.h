// Causal attention of the query heads that share one pair of key and value heads, on one thread, in float32 inside.
// heads.cpp is compiled once for each set of instructions, into a namespace of its own; best_attention()
// picks when the program runs. No torch here: what is compiled for newer processors must not share inline functions
// with the rest of the program.
//
// Not tiled over keys as FlashAttention is (Dao et al. 2022): a few rows of scores fit the second cache even for long
// sequences, so the softmax is the plain one, in three passes. The backward recomputes the scores from the saved
// logarithms of the sums, as there.
#pragma once

#include <cstdint>

#include "kernels/portable/half_bits.h"

namespace titan::kernels {

// Rows of one head; elements of a row are neighbours.
template <typename T>
struct Rows {
  T* data;
  std::int64_t stride;  // elements from one row to the next
};

struct HeadsShape {
  std::int64_t length;    // of queries and of keys
  std::int64_t head_dim;  // a multiple of AttentionKernels::head_dim_unit
  float scale;            // of the products of queries and keys
};

// [length, head_dim] each but sums, [length]: the logarithm of the sum of exponentials of a row's scaled scores.
template <typename T>
struct HeadTensors {
  Rows<const T> q, k, v;
  Rows<T> out;
  Rows<float> sums;  // a row has one element
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

  // `heads` are `num_heads` queries' heads with the same k and v.
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

// Queries that see all keys: those of one further token, of the heads that share a pair of key and value heads.
struct CachedShape {
  std::int64_t queries, keys;
  std::int64_t head_dim;  // a multiple of head_dim_unit
  float scale;
};

// Attention of CachedShape on one thread: rows of q and out are [queries, head_dim], of k and v [keys, head_dim], and
// sums [queries].
struct CachedAttentionKernels {
  const char* name;
  std::int64_t head_dim_unit;
  std::int64_t (*workspace)(const CachedShape& shape);  // floats
  void (*attend_float)(const CachedShape&, const HeadTensors<float>&, float* workspace);
  void (*attend_bfloat16)(const CachedShape&, const HeadTensors<BFloat16Bits>&, float* workspace);
  void (*attend_float16)(const CachedShape&, const HeadTensors<Float16Bits>&, float* workspace);
};

// For any processor, for AVX2 with FMA, for AVX-512, and that with products of bfloat16 in vectors or in tiles, which
// rounds weights and score gradients to it and takes numbers below its normal ones for 0 (bfloat16_heads.cpp). Only
// those that this machine has may be called.
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
