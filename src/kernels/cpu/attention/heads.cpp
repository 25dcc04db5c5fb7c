// Compiled with TITAN_ISA (the namespace) and TITAN_VECTOR_BYTES, see CMakeLists.txt.
#include "kernels/cpu/attention/heads.h"

#include <cmath>

#include "kernels/cpu/attention/seen_keys.h"
#include "kernels/cpu/simd/vector.h"

namespace titan::kernels::TITAN_ISA {
namespace {

constexpr Index kRows = TITAN_VECTOR_BYTES == 64 ? 8 : 4;  // rows of a tile: its sums stay in registers
constexpr Index kColumns = 2;                              // vectors per row of a tile

// Rounds a number of keys up to full tiles.
Index padded(Index length) { return round_up(length, kColumns * kWidth); }

// to[i][e] = from[i][e] * scale, with rows of `to` contiguous
template <typename T>
void unpack(Rows<const T> from, Index rows, Index dim, float scale, float* to) {
  for (Index i = 0; i < rows; ++i)
    for (Index e = 0; e < dim; e += kWidth) store(to + i * dim + e, load(from.data + i * from.stride + e) * scale);
}

// to[e][i] = from[i][e], rows of `to` padded with zeros
void transpose(const float* from, Index length, Index dim, float* to) {
  const Index stride = padded(length);
  for (Index e = 0; e < dim; ++e) {
    for (Index i = 0; i < length; ++i) to[e * stride + i] = from[i * dim + e];
    for (Index i = length; i < stride; ++i) to[e * stride + i] = 0;
  }
}

template <typename T>
void pack(const float* from, Index rows, Index dim, Rows<T> to) {
  for (Index i = 0; i < rows; ++i)
    for (Index e = 0; e < dim; e += kWidth) store(to.data + i * to.stride + e, load(from + i * dim + e));
}

// products[r][j] = sum over e of a[r][e] * b[e][j], for kRows rows and j < columns (a multiple of the tile's)
void multiply(const float* a, Index dim, const float* b, Index stride, Index columns, float* products) {
  for (Index j = 0; j < columns; j += kColumns * kWidth) {
    Vector sums[kRows][kColumns] = {};
    for (Index e = 0; e < dim; ++e) {
      Vector right[kColumns];
      for (Index c = 0; c < kColumns; ++c) right[c] = load(b + e * stride + j + c * kWidth);
      for (Index r = 0; r < kRows; ++r)
        for (Index c = 0; c < kColumns; ++c) sums[r][c] += a[r * dim + e] * right[c];
    }
    for (Index r = 0; r < kRows; ++r)
      for (Index c = 0; c < kColumns; ++c) store(products + r * stride + j + c * kWidth, sums[r][c]);
  }
}

// out[r][e] = sum over j < count of weights[r][j] * values[j][e], for kRows rows; keys from `count` on are masked for
// all
template <Index kVectors>
void combine_columns(const float* weights, Index stride, const float* values, Index dim, Index count, float* out) {
  Vector sums[kRows][kVectors] = {};
  for (Index j = 0; j < count; ++j) {
    Vector value[kVectors];
    for (Index c = 0; c < kVectors; ++c) value[c] = load(values + j * dim + c * kWidth);
    for (Index r = 0; r < kRows; ++r)
      for (Index c = 0; c < kVectors; ++c) sums[r][c] += weights[r * stride + j] * value[c];
  }
  for (Index r = 0; r < kRows; ++r)
    for (Index c = 0; c < kVectors; ++c) store(out + r * dim + c * kWidth, sums[r][c]);
}
void combine(const float* weights, Index stride, const float* values, Index dim, Index count, float* out) {
  Index e = 0;
  for (; e + kColumns * kWidth <= dim; e += kColumns * kWidth)
    combine_columns<kColumns>(weights, stride, values + e, dim, count, out + e);
  for (; e < dim; e += kWidth) combine_columns<1>(weights, stride, values + e, dim, count, out + e);
}

// sums[j][e] += sum over r of weights[r][j] * rows[r][e], for kRows rows and j < count
void scatter(const float* weights, Index stride, const float* rows, Index dim, Index count, float* sums) {
  for (Index e = 0; e < dim; e += kWidth) {
    Vector row[kRows];
    for (Index r = 0; r < kRows; ++r) row[r] = load(rows + r * dim + e);
    for (Index j = 0; j < count; ++j) {
      Vector even = load(sums + j * dim + e), odd = {};
      for (Index r = 0; r < kRows; r += 2) {
        even += weights[r * stride + j] * row[r];
        odd += weights[(r + 1) * stride + j] * row[r + 1];
      }
      store(sums + j * dim + e, even + odd);
    }
  }
}

float largest(const float* values, Index count) {
  float out = values[0];
  Index j = 0;
  if (count >= kWidth) {
    Vector largest = load(values);
    for (j = kWidth; j + kWidth <= count; j += kWidth) {
      const Vector value = load(values + j);
      largest = value > largest ? value : largest;
    }
    for (Index i = 0; i < kWidth; ++i) out = largest[i] > out ? largest[i] : out;
  }
  for (; j < count; ++j) out = values[j] > out ? values[j] : out;
  return out;
}

// Sets values[j] = e^(values[j] - shift) for j < count, and 0 up to `end`. Returns their sum.
float exponentials(float* values, Index count, Index end, float shift) {
  Vector sums = {};
  Index j = 0;
  for (; j + kWidth <= count; j += kWidth) {
    const Vector value = exponential(load(values + j) - shift);
    store(values + j, value);
    sums += value;
  }
  if (j < end) {  // rows are padded to full vectors
    float last[kWidth];
    for (Index i = 0; i < kWidth; ++i) last[i] = j + i < count ? values[j + i] - shift : -100.0F;
    const Vector value = exponential(load(last));
    store(values + j, value);
    sums += value;
    for (j += kWidth; j < end; ++j) values[j] = 0;
  }
  return sum_of(sums);
}

float* take(float*& memory, Index floats) {
  float* const part = memory;
  memory += floats;
  return part;
}

// The parts of a workspace.
struct Workspace {
  float *k, *v, *k_transposed, *v_transposed, *k_grad,
      *v_grad;                  // [padded keys, dim], transposed [dim, padded keys]
  float *scores, *score_grads;  // [kRows, padded keys]
  float *q, *out, *out_grad;    // [kRows, dim]

  Workspace(float* memory, const HeadsShape& shape) {
    const Index matrix = padded(shape.keys) * shape.head_dim;
    k = take(memory, matrix);
    v = take(memory, matrix);
    k_transposed = take(memory, matrix);
    v_transposed = take(memory, matrix);
    k_grad = take(memory, matrix);
    v_grad = take(memory, matrix);
    scores = take(memory, kRows * padded(shape.keys));
    score_grads = take(memory, kRows * padded(shape.keys));
    q = take(memory, kRows * shape.head_dim);
    out = take(memory, kRows * shape.head_dim);
    out_grad = take(memory, kRows * shape.head_dim);
  }
};

Index workspace_floats(const HeadsShape& shape) {
  return 6 * padded(shape.keys) * shape.head_dim + 2 * kRows * padded(shape.keys) + 3 * kRows * shape.head_dim;
}

template <typename T>
Rows<T> from_row(Rows<T> rows, Index row) {
  return {rows.data + row * rows.stride, rows.stride};
}

// Unpacks the next tile of rows; rows past the end are zeros.
template <typename T>
void unpack_tile(Rows<const T> from, Index begin, Index rows, Index dim, float scale, float* to) {
  unpack(from_row(from, begin), rows, dim, scale, to);
  for (Index i = rows * dim; i < kRows * dim; ++i) to[i] = 0;
}

template <typename T>
void unpack_keys_and_values(const HeadsShape& shape, const HeadTensors<T>& tensors, const Workspace& work) {
  unpack(tensors.k, shape.keys, shape.head_dim, 1.0F, work.k);
  transpose(work.k, shape.keys, shape.head_dim, work.k_transposed);
  unpack(tensors.v, shape.keys, shape.head_dim, 1.0F, work.v);
}

struct Tile {
  Index rows;     // kRows, or fewer at the end
  Index keys;     // keys that any of the rows sees
  Index columns;  // columns of scores: the keys, padded
};

// Unpacks the queries from row `begin` on, and multiplies them with the keys that they see.
template <typename T>
Tile score_tile(const HeadsShape& shape, const HeadTensors<T>& tensors, Index begin, const Workspace& work) {
  const Index rows = shape.queries - begin < kRows ? shape.queries - begin : kRows;
  const Index keys = seen_keys(shape, begin + rows - 1);
  const Tile tile{rows, keys, padded(keys)};
  unpack_tile(tensors.q, begin, rows, shape.head_dim, shape.scale, work.q);
  multiply(work.q, shape.head_dim, work.k_transposed, padded(shape.keys), tile.columns, work.scores);
  return tile;
}

template <typename T>
void forward(const HeadsShape& shape, const HeadTensors<T>* heads, Index num_heads, float* memory) {
  const Workspace work(memory, shape);
  const Index dim = shape.head_dim, stride = padded(shape.keys);
  unpack_keys_and_values(shape, heads[0], work);
  for (Index head = 0; head < num_heads; ++head) {
    const HeadTensors<T>& tensors = heads[head];
    for (Index begin = 0; begin < shape.queries; begin += kRows) {
      const auto [rows, keys, columns] = score_tile(shape, tensors, begin, work);
      float sums[kRows] = {};
      for (Index r = 0; r < rows; ++r) {
        float* const scores = work.scores + r * stride;
        const Index seen = seen_keys(shape, begin + r);
        const float shift = largest(scores, seen);
        sums[r] = exponentials(scores, seen, columns, shift);
        tensors.sums.data[(begin + r) * tensors.sums.stride] = shift + std::log(sums[r]);
      }
      combine(work.scores, stride, work.v, dim, keys, work.out);
      for (Index r = 0; r < rows; ++r)
        for (Index e = 0; e < dim; e += kWidth) store(work.out + r * dim + e, load(work.out + r * dim + e) / sums[r]);
      pack(work.out, rows, dim, from_row(tensors.out, begin));
    }
  }
}

Index cached_floats(const CachedShape& shape) { return round_up(shape.keys, kWidth) + 2 * shape.head_dim; }

// Reads keys and values once for each query, which limits its speed.
template <typename T>
void attend_cached(const CachedShape& shape, const HeadTensors<T>& tensors, float* memory) {
  const Index dim = shape.head_dim, end = round_up(shape.keys, kWidth);
  float *const scores = take(memory, end), *const q = take(memory, dim), *const out = take(memory, dim);
  for (Index r = 0; r < shape.queries; ++r) {
    unpack(from_row(tensors.q, r), 1, dim, shape.scale, q);
    for (Index j = 0; j < shape.keys; ++j) {
      Vector products = {};
      for (Index e = 0; e < dim; e += kWidth) products += load(tensors.k.data + j * tensors.k.stride + e) * load(q + e);
      scores[j] = sum_of(products);
    }
    const float shift = largest(scores, shape.keys), sum = exponentials(scores, shape.keys, end, shift);
    tensors.sums.data[r * tensors.sums.stride] = shift + std::log(sum);
    for (Index e = 0; e < dim; ++e) out[e] = 0;
    for (Index j = 0; j < shape.keys; ++j)
      for (Index e = 0; e < dim; e += kWidth)
        store(out + e, load(out + e) + scores[j] / sum * load(tensors.v.data + j * tensors.v.stride + e));
    pack(out, 1, dim, from_row(tensors.out, r));
  }
}

template <typename T>
void backward(const HeadsShape& shape, const HeadTensors<T>* heads, const HeadGradients<T>* grads, Index num_heads,
              Rows<T> k_grad, Rows<T> v_grad, float* memory) {
  const Workspace work(memory, shape);
  const Index dim = shape.head_dim, stride = padded(shape.keys);
  unpack_keys_and_values(shape, heads[0], work);
  transpose(work.v, shape.keys, dim, work.v_transposed);
  for (Index i = 0; i < shape.keys * dim; ++i) work.k_grad[i] = work.v_grad[i] = 0;
  for (Index head = 0; head < num_heads; ++head) {
    const HeadTensors<T>& tensors = heads[head];
    for (Index begin = 0; begin < shape.queries; begin += kRows) {
      const auto [rows, keys, columns] = score_tile(shape, tensors, begin, work);
      unpack_tile(grads[head].out, begin, rows, dim, 1.0F, work.out_grad);
      multiply(work.out_grad, dim, work.v_transposed, stride, columns, work.score_grads);
      for (Index r = 0; r < kRows; ++r) {
        float* const scores = work.scores + r * stride;
        float* const score_grads = work.score_grads + r * stride;
        if (r >= rows) {  // padding of the tile: its weights are zero
          for (Index j = 0; j < columns; ++j) scores[j] = score_grads[j] = 0;
          continue;
        }
        const T* const out = tensors.out.data + (begin + r) * tensors.out.stride;
        Vector dots = {};
        for (Index e = 0; e < dim; e += kWidth) dots += load(out + e) * load(work.out_grad + r * dim + e);
        const float dot = sum_of(dots);
        exponentials(scores, seen_keys(shape, begin + r), columns,
                     tensors.sums.data[(begin + r) * tensors.sums.stride]);
        for (Index j = 0; j < columns; ++j) score_grads[j] = scores[j] * (score_grads[j] - dot);
      }
      combine(work.score_grads, stride, work.k, dim, keys, work.out);
      for (Index i = 0; i < rows * dim; ++i) work.out[i] *= shape.scale;
      pack(work.out, rows, dim, from_row(grads[head].q, begin));
      scatter(work.score_grads, stride, work.q, dim, keys, work.k_grad);
      scatter(work.scores, stride, work.out_grad, dim, keys, work.v_grad);
    }
  }
  pack(work.k_grad, shape.keys, dim, k_grad);
  pack(work.v_grad, shape.keys, dim, v_grad);
}

}  // namespace

extern const AttentionKernels kAttention = {.name = TITAN_STRING(TITAN_ISA),
                                            .head_dim_unit = kWidth,
                                            .workspace = workspace_floats,
                                            .forward_float = forward<float>,
                                            .forward_bfloat16 = forward<BFloat16Bits>,
                                            .forward_float16 = forward<Float16Bits>,
                                            .backward_float = backward<float>,
                                            .backward_bfloat16 = backward<BFloat16Bits>,
                                            .backward_float16 = backward<Float16Bits>};
extern const CachedAttentionKernels kCachedAttention = {.name = TITAN_STRING(TITAN_ISA),
                                                        .head_dim_unit = kWidth,
                                                        .workspace = cached_floats,
                                                        .attend_float = attend_cached<float>,
                                                        .attend_bfloat16 = attend_cached<BFloat16Bits>,
                                                        .attend_float16 = attend_cached<Float16Bits>};

}  // namespace titan::kernels::TITAN_ISA
