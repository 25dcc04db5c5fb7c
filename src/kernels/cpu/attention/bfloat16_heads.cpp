// bfloat16 attention for processors with bfloat16 multiply-adds. Compiled with TITAN_ISA and TITAN_VECTOR_BYTES, see
// CMakeLists.txt: once for vectors (AVX512-BF16, twice the throughput of float32), once for tiles (AMX). Tensors in
// float32 and float16 go to AVX-512's kernel.
//
// Weights and score gradients are rounded before they are multiplied, as in FlashAttention; the softmax and sums are in
// float32.
#include <cmath>
#include <initializer_list>

#ifdef __AMX_BF16__
#include "kernels/cpu/attention/products_tile.h"
#else
#include "kernels/cpu/attention/products_vector.h"
#endif

namespace titan::kernels::TITAN_ISA {
namespace {

constexpr float kLog2E = 1.44269504088896341F;
constexpr float kLn2 = 0.693147180559945309F;

// Returns 2^x, to a relative 2e-7, for x up to about 1/2; 0 far below. The polynomial is the best of its degree on
// [-1/2, 1/2].
__m512 power_of_2(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-200.0F), x);  // minus infinity as well; NaN stays NaN
  const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 r = _mm512_sub_ps(x, n);
  __m512 p = _mm512_set1_ps(1.327647196e-3F);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.675541503e-3F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.550713275e-2F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.402211972e-1F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.931469671e-1F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F));
  return _mm512_scalef_ps(p, n);
}

// Returns a mask of the first `count` elements of a vector.
__mmask16 first(Index count) {
  return count >= kWidth ? __mmask16{0xFFFF} : count <= 0 ? __mmask16{0} : static_cast<__mmask16>((1 << count) - 1);
}

// Copies rows without gaps, and zeros those up to `padded_rows`.
void copy_rows(Rows<const BFloat16Bits> from, Index rows, Index padded_rows, Index dim, BFloat16Bits* to) {
  for (Index i = 0; i < rows; ++i)
    for (Index e = 0; e < dim; e += kWidth) {
      const auto* const halves = reinterpret_cast<const __m256i*>(from.data + i * from.stride + e);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i * dim + e), _mm256_loadu_si256(halves));
    }
  std::memset(to + rows * dim, 0, static_cast<std::size_t>((padded_rows - rows) * dim) * sizeof *to);
}

// Transposes words [8 rows | 8 more rows][8] -> [8][8 rows | 8 more rows].
void transpose_words(__m512i (&words)[8]) {
  transpose_fours(words);
  const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13), high = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
  for (Index i = 0; i < 4; ++i) {
    const __m512i first_rows = words[i], last_rows = words[i + 4];
    words[i] = _mm512_permutex2var_epi64(first_rows, low, last_rows);
    words[i + 4] = _mm512_permutex2var_epi64(first_rows, high, last_rows);
  }
}

// to[j / 16][e / 2][j % 16] = from[j][e] and from[j][e + 1], for full groups of 16 rows
void pair_dims(const BFloat16Bits* from, Index rows, Index dim, Word* to) {
  for (Index j = 0; j < rows; j += kWidth)
    for (Index e = 0; e < dim; e += 16) {
      __m512i words[8];
      for (Index i = 0; i < 8; ++i) words[i] = load_both(from + (j + i) * dim + e, from + (j + i + 8) * dim + e);
      transpose_words(words);
      for (Index i = 0; i < 8; ++i) store_words(to + (j * dim + e * kWidth) / 2 + i * kWidth, words[i]);
    }
}

// Returns the largest of factor * scores[j], j < count.
float largest(const float* scores, Index count, __m512 factor) {
  __m512 out = _mm512_set1_ps(-HUGE_VALF);
  for (Index j = 0; j < count; j += kWidth) {
    const __mmask16 seen = first(count - j);
    out = _mm512_mask_max_ps(out, seen, _mm512_mul_ps(_mm512_maskz_loadu_ps(seen, scores + j), factor), out);
  }
  return _mm512_reduce_max_ps(out);
}

// Sets weights[j] = 2^(factor * scores[j] - shift) for j < count, and 0 up to `end`. Returns their sum before rounding.
float powers(const float* scores, Index count, Index end, __m512 factor, float shift, BFloat16Bits* weights) {
  const __m512 shifts = _mm512_set1_ps(shift);
  __m512 sum = _mm512_setzero_ps();
  for (Index j = 0; j < end; j += kWidth) {
    const __m512 x = _mm512_fmsub_ps(_mm512_loadu_ps(scores + j), factor, shifts);
    const __m512 value = _mm512_maskz_mov_ps(first(count - j), power_of_2(x));
    sum = _mm512_add_ps(sum, value);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights + j), round_to_halves(value));
  }
  return _mm512_reduce_add_ps(sum);
}

float dot(const BFloat16Bits* a, const BFloat16Bits* b, Index dim) {
  Vector sum = {};
  for (Index e = 0; e < dim; e += kWidth) sum += load(a + e) * load(b + e);
  return _mm512_reduce_add_ps(sum);
}

template <typename T>
T* take(float*& memory, Index floats) {
  float* const part = memory;
  memory += floats;
  return reinterpret_cast<T*>(part);
}

// The parts of a workspace.
struct Workspace {
  BFloat16Bits* rows;                     // [padded keys, dim]
  Word *k_dims, *v_dims;                  // as pair_dims() makes them
  Word *k_rows, *v_rows;                  // as pair_rows() does
  float *k_grad, *v_grad;                 // sums as scatter() adds to them
  float *scores, *weight_grads;           // [kTile, row_stride]
  BFloat16Bits* weights;                  // [kBlock, row_stride], in backward the gradients of scores
  Word *weight_pairs, *score_grad_pairs;  // [kBlock / 2, row_stride]
  BFloat16Bits *q, *out_grad;             // [kBlock, dim]
  Word *q_block, *out_grad_block;         // as pack_block() makes them

  Workspace(float* memory, const HeadsShape& shape) {
    memory += -(reinterpret_cast<std::uintptr_t>(memory) / sizeof(float)) % kWidth;  // to the start of a cache line
    const Index matrix = padded(shape.keys) * shape.head_dim, stride = row_stride(shape.keys);
    rows = take<BFloat16Bits>(memory, matrix / 2);
    for (Word** const part : {&k_dims, &v_dims, &k_rows, &v_rows}) *part = take<Word>(memory, matrix / 2);
    const Index sums = sums_numel(shape.keys, shape.head_dim);
    for (float** const part : {&k_grad, &v_grad}) *part = take<float>(memory, sums);
    for (float** const part : {&scores, &weight_grads}) *part = take<float>(memory, kTile * stride);
    weights = take<BFloat16Bits>(memory, kBlock * stride / 2);
    for (Word** const part : {&weight_pairs, &score_grad_pairs}) *part = take<Word>(memory, kBlock / 2 * stride);
    for (BFloat16Bits** const part : {&q, &out_grad}) *part = take<BFloat16Bits>(memory, kBlock / 2 * shape.head_dim);
    for (Word** const part : {&q_block, &out_grad_block}) *part = take<Word>(memory, kBlock / 2 * shape.head_dim);
  }
};

Index workspace_floats(const HeadsShape& shape) {
  const Index matrix = padded(shape.keys) * shape.head_dim;
  const Index own = kWidth + 5 * matrix / 2 + 2 * sums_numel(shape.keys, shape.head_dim) +
                    (2 * kTile + kBlock * 3 / 2) * row_stride(shape.keys) + 2 * kBlock * shape.head_dim;
  const Index in_float32 = avx512::kAttention.workspace(shape);
  return own > in_float32 ? own : in_float32;
}

template <typename T>
Rows<T> from_row(Rows<T> rows, Index row) {
  return {rows.data + row * rows.stride, rows.stride};
}

// Returns how many columns of scores a group of rows has, the one that begins with query `begin`.
Index group_columns(const HeadsShape& shape, Index begin) { return padded(seen_keys(shape, begin + kGroup - 1)); }

const Word* words_of(const BFloat16Bits* halves) { return reinterpret_cast<const Word*>(halves); }

void forward(const HeadsShape& shape, const HeadTensors<BFloat16Bits>* heads, Index num_heads, float* memory) {
  [[maybe_unused]] const ProductsScope scope;
  const Workspace work(memory, shape);
  const Index dim = shape.head_dim, stride = row_stride(shape.keys);
  const __m512 factor = _mm512_set1_ps(shape.scale * kLog2E);
  copy_rows(heads[0].k, shape.keys, padded(shape.keys), dim, work.rows);
  pair_dims(work.rows, padded(shape.keys), dim, work.k_dims);
  copy_rows(heads[0].v, shape.keys, padded(shape.keys), dim, work.rows);
  pair_rows(work.rows, padded(shape.keys), dim, work.v_rows);
  for (Index head = 0; head < num_heads; ++head) {
    const HeadTensors<BFloat16Bits>& tensors = heads[head];
    for (Index begin = 0; begin < shape.queries; begin += kGroup) {
      const Index rows = shape.queries - begin < kGroup ? shape.queries - begin : kGroup;
      const Index columns = group_columns(shape, begin);
      copy_rows(from_row(tensors.q, begin), rows, kGroup, dim, work.q);
      float factors[kGroup] = {};
      for (Index r = 0; r < kGroup; ++r) {
        if (r % kTile == 0) multiply(words_of(work.q + r * dim), dim / 2, work.k_dims, columns, work.scores, stride);
        const float* const scores = work.scores + r % kTile * stride;
        const Index count = r < rows ? seen_keys(shape, begin + r) : 0;
        const float shift = largest(scores, count, factor);
        const float sum = powers(scores, count, columns, factor, shift, work.weights + r * stride);
        if (r >= rows) continue;
        factors[r] = 1 / sum;
        tensors.sums.data[(begin + r) * tensors.sums.stride] = shift * kLn2 + std::log(sum);
      }
      combine({work.weights, stride}, work.v_rows, dim, columns, factors, rows, from_row(tensors.out, begin));
    }
  }
}

// Inputs of the softmax's backward for one row.
struct RowState {
  Index count;     // keys that it sees
  float log2_sum;  // log2 of the sum of exponentials
  float dot;       // dot product of the output and its gradient
};

// Computes the weights and score gradients of rows 2 * pair and 2 * pair + 1 of a block, from the scores and weight
// gradients of their tile.
void differentiate_pair(const Workspace& work, Index stride, Index pair, Index columns, __m512 factor,
                        const RowState (&rows)[2]) {
  const Index in_tile = 2 * pair % kTile * stride;
  for (Index j = 0; j < columns; j += kWidth) {
    __m512 weights[2], grads[2];
    for (Index i = 0; i < 2; ++i) {
      const Index at = in_tile + i * stride + j;
      const __mmask16 seen = first(rows[i].count - j);
      const __m512 x = _mm512_fmsub_ps(_mm512_loadu_ps(work.scores + at), factor, _mm512_set1_ps(rows[i].log2_sum));
      weights[i] = _mm512_maskz_mov_ps(seen, power_of_2(x));
      const __m512 grad = _mm512_sub_ps(_mm512_loadu_ps(work.weight_grads + at), _mm512_set1_ps(rows[i].dot));
      grads[i] = _mm512_maskz_mul_ps(seen, weights[i], grad);
    }
    const __m512i rounded = round_both(grads[0], grads[1]);
    BFloat16Bits* const row = work.weights + 2 * pair * stride + j;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row), _mm512_castsi512_si256(rounded));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + stride), _mm512_extracti64x4_epi64(rounded, 1));
    store_words(work.score_grad_pairs + pair * stride + j, interleave(rounded));
    store_words(work.weight_pairs + pair * stride + j, interleave(round_both(weights[0], weights[1])));
  }
}

// Handles the block of rows from `begin` on: writes the gradients of queries, and adds its part of those of keys and
// values.
void backward_block(const HeadsShape& shape, const HeadTensors<BFloat16Bits>& tensors,
                    const HeadGradients<BFloat16Bits>& grads, Index begin, const Workspace& work) {
  const Index dim = shape.head_dim, stride = row_stride(shape.keys);
  const Index rows = shape.queries - begin < kBlock ? shape.queries - begin : kBlock, padded_rows = padded(rows);
  const __m512 factor = _mm512_set1_ps(shape.scale * kLog2E);
  copy_rows(from_row(tensors.q, begin), rows, padded_rows, dim, work.q);
  copy_rows(from_row(grads.out, begin), rows, padded_rows, dim, work.out_grad);
  pack_block(work.q, padded_rows, dim, work.q_block);
  pack_block(work.out_grad, padded_rows, dim, work.out_grad_block);
  for (Index r = 0; r < padded_rows; r += 2) {
    const Index columns = group_columns(shape, begin + r / kGroup * kGroup);
    if (r % kTile == 0) {
      multiply(words_of(work.q + r * dim), dim / 2, work.k_dims, columns, work.scores, stride);
      multiply(words_of(work.out_grad + r * dim), dim / 2, work.v_dims, columns, work.weight_grads, stride);
    }
    RowState states[2] = {};
    for (Index i = r; i < r + 2 && i < rows; ++i) {
      const Rows<BFloat16Bits> out = from_row(tensors.out, begin + i);
      states[i - r] = {seen_keys(shape, begin + i), tensors.sums.data[(begin + i) * tensors.sums.stride] * kLog2E,
                       dot(out.data, work.out_grad + i * dim, dim)};
    }
    differentiate_pair(work, stride, r / 2, columns, factor, states);
  }
  float scales[kGroup];
  for (float& scale : scales) scale = shape.scale;
  for (Index r = 0; r < rows; r += kGroup)
    combine({work.weights + r * stride, stride}, work.k_rows, dim, group_columns(shape, begin + r), scales, rows - r,
            from_row(grads.q, begin + r));
  const Index pairs = padded_rows / 2, diagonal = begin + shape.offset;
  const Index count = group_columns(shape, begin + padded_rows - kGroup);
  scatter(work.score_grad_pairs, stride, work.q_block, pairs, dim, diagonal, count, work.k_grad);
  scatter(work.weight_pairs, stride, work.out_grad_block, pairs, dim, diagonal, count, work.v_grad);
}

void backward(const HeadsShape& shape, const HeadTensors<BFloat16Bits>* heads, const HeadGradients<BFloat16Bits>* grads,
              Index num_heads, Rows<BFloat16Bits> k_grad, Rows<BFloat16Bits> v_grad, float* memory) {
  [[maybe_unused]] const ProductsScope scope;
  const Workspace work(memory, shape);
  const Index dim = shape.head_dim;
  copy_rows(heads[0].k, shape.keys, padded(shape.keys), dim, work.rows);
  pair_dims(work.rows, padded(shape.keys), dim, work.k_dims);
  pair_rows(work.rows, padded(shape.keys), dim, work.k_rows);
  copy_rows(heads[0].v, shape.keys, padded(shape.keys), dim, work.rows);
  pair_dims(work.rows, padded(shape.keys), dim, work.v_dims);
  const auto bytes = static_cast<std::size_t>(sums_numel(shape.keys, dim)) * sizeof(float);
  std::memset(work.k_grad, 0, bytes);
  std::memset(work.v_grad, 0, bytes);
  for (Index head = 0; head < num_heads; ++head)
    for (Index begin = 0; begin < shape.queries; begin += kBlock)
      backward_block(shape, heads[head], grads[head], begin, work);
  take_sums(work.k_grad, shape.keys, dim, shape.scale, k_grad);
  take_sums(work.v_grad, shape.keys, dim, 1.0F, v_grad);
}

void forward_float(const HeadsShape& shape, const HeadTensors<float>* heads, Index num_heads, float* workspace) {
  avx512::kAttention.forward_float(shape, heads, num_heads, workspace);
}
void backward_float(const HeadsShape& shape, const HeadTensors<float>* heads, const HeadGradients<float>* grads,
                    Index num_heads, Rows<float> k_grad, Rows<float> v_grad, float* workspace) {
  avx512::kAttention.backward_float(shape, heads, grads, num_heads, k_grad, v_grad, workspace);
}
void forward_float16(const HeadsShape& shape, const HeadTensors<Float16Bits>* heads, Index num_heads,
                     float* workspace) {
  avx512::kAttention.forward_float16(shape, heads, num_heads, workspace);
}
void backward_float16(const HeadsShape& shape, const HeadTensors<Float16Bits>* heads,
                      const HeadGradients<Float16Bits>* grads, Index num_heads, Rows<Float16Bits> k_grad,
                      Rows<Float16Bits> v_grad, float* workspace) {
  avx512::kAttention.backward_float16(shape, heads, grads, num_heads, k_grad, v_grad, workspace);
}

}  // namespace

extern const AttentionKernels kAttention = {.name = TITAN_STRING(TITAN_ISA),
                                            .head_dim_unit = kWidth,
                                            .workspace = workspace_floats,
                                            .forward_float = forward_float,
                                            .forward_bfloat16 = forward,
                                            .forward_float16 = forward_float16,
                                            .backward_float = backward_float,
                                            .backward_bfloat16 = backward,
                                            .backward_float16 = backward_float16};

}  // namespace titan::kernels::TITAN_ISA
