// Compiled with TITAN_ISA (the namespace) and TITAN_VECTOR_BYTES, see CMakeLists.txt.
#include "kernels/cpu/rows/fused_rows.h"

#include <cmath>
#include <utility>

#include "kernels/cpu/simd/vector.h"

namespace titan::kernels::TITAN_ISA {
namespace {

constexpr Index kChains = 4;  // independent partial sums

// Returns the sum of squares of a row; value(j, Whole or Part) returns its elements from j on and is called once for
// each.
template <typename Value>
float sum_of_squares(Index dim, const Value& value) {
  Vector sums[kChains] = {};
  Index j = 0;
  for (; j + kChains * kWidth <= dim; j += kChains * kWidth) {
    for (Index c = 0; c < kChains; ++c) {
      const Vector x = value(j + c * kWidth, Whole{});
      sums[c] += x * x;
    }
  }
  for_vectors(j, dim, [&](Index i, auto lanes) {
    const Vector x = value(i, lanes);
    sums[0] += x * x;
  });
  return sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// Writes a row of `out` from x and the sum of x's squares. Returns the row's rrms.
template <typename T>
float normalize(Index dim, float squares, const T* x, const T* weight, float eps, T* out) {
  const float scale = 1 / std::sqrt(squares / static_cast<float>(dim) + eps);
  for_vectors(0, dim, [&](Index j, auto lanes) {
    store(out + j, load(x + j, lanes) * scale * load(weight + j, lanes), lanes);
  });
  return scale;
}

template <typename T>
void rms_norm(RowsShape shape, const T* x, const T* weight, float eps, T* out, float* rrms) {
  for (Index i = 0; i < shape.rows; ++i, x += shape.dim, out += shape.dim) {
    const float squares = sum_of_squares(shape.dim, [&](Index j, auto lanes) { return load(x + j, lanes); });
    rrms[i] = normalize(shape.dim, squares, x, weight, eps, out);
  }
}

template <typename T>
void add_rms_norm(RowsShape shape, const T* x, const T* delta, const T* weight, float eps, T* sum, T* out,
                  float* rrms) {
  const Index dim = shape.dim;
  for (Index i = 0; i < shape.rows; ++i, x += dim, delta += dim, sum += dim, out += dim) {
    const float squares = sum_of_squares(dim, [&](Index j, auto lanes) {
      const Vector value = load(x + j, lanes) + load(delta + j, lanes);
      store(sum + j, value, lanes);
      return rounded<T>(value);
    });
    rrms[i] = normalize(dim, squares, sum, weight, eps, out);
  }
}

// Handles kRows rows at once: the sums over rows are read and written once for all of them. kMore: true if there is
// `more`.
template <Index kRows, bool kMore, typename T>
void rms_norm_backward_rows(Index dim, const T* out_grad, const T* more, const T* x, const T* weight, const float* rrms,
                            T* x_grad, float* weight_grad) {
  Vector dots[kRows] = {};
  for_vectors(0, dim, [&](Index j, auto lanes) {
    const Vector factor = load(weight + j, lanes);
    for (Index r = 0; r < kRows; ++r)
      dots[r] += load(out_grad + r * dim + j, lanes) * factor * load(x + r * dim + j, lanes);
  });
  float pulls[kRows];  // x's factor in the gradient through the mean square
  for (Index r = 0; r < kRows; ++r) pulls[r] = sum_of(dots[r]) * rrms[r] * rrms[r] * rrms[r] / static_cast<float>(dim);
  for_vectors(0, dim, [&](Index j, auto lanes) {
    const Vector factor = load(weight + j, lanes);
    Vector products[kRows];
    for (Index r = 0; r < kRows; ++r) {
      const Vector grad = load(out_grad + r * dim + j, lanes), value = load(x + r * dim + j, lanes);
      Vector pushed = grad * factor * rrms[r] - value * pulls[r];
      if constexpr (kMore) pushed = rounded<T>(pushed) + load(more + r * dim + j, lanes);
      store(x_grad + r * dim + j, pushed, lanes);
      products[r] = grad * (value * rrms[r]);
    }
    for (Index step = 1; step < kRows; step *= 2)
      for (Index r = 0; r + step < kRows; r += 2 * step) products[r] += products[r + step];
    store(weight_grad + j, load(weight_grad + j, lanes) + products[0], lanes);
  });
}

template <bool kMore, typename T>
void rms_norm_backward_all(RowsShape shape, const T* out_grad, const T* more, const T* x, const T* weight,
                           const float* rrms, T* x_grad, float* weight_grad) {
  constexpr Index kRows = 4;
  const Index dim = shape.dim;
  const auto more_at = [&](Index i) { return kMore ? more + i * dim : nullptr; };
  for (Index j = 0; j < dim; ++j) weight_grad[j] = 0;
  Index i = 0;
  for (; i + kRows <= shape.rows; i += kRows)
    rms_norm_backward_rows<kRows, kMore>(dim, out_grad + i * dim, more_at(i), x + i * dim, weight, rrms + i,
                                         x_grad + i * dim, weight_grad);
  for (; i < shape.rows; ++i)
    rms_norm_backward_rows<1, kMore>(dim, out_grad + i * dim, more_at(i), x + i * dim, weight, rrms + i,
                                     x_grad + i * dim, weight_grad);
}

template <typename T>
void rms_norm_backward(RowsShape shape, const T* out_grad, const T* more, const T* x, const T* weight,
                       const float* rrms, T* x_grad, float* weight_grad) {
  const auto run = more ? rms_norm_backward_all<true, T> : rms_norm_backward_all<false, T>;
  run(shape, out_grad, more, x, weight, rrms, x_grad, weight_grad);
}

template <typename T>
void sum_rows(RowsShape shape, float* values, T* sums) {
  for (Index step = 1; step < shape.rows; step *= 2) {
    for (Index i = 0; i + step < shape.rows; i += 2 * step) {
      float* const to = values + i * shape.dim;
      const float* const from = to + step * shape.dim;
      for_vectors(0, shape.dim,
                  [&](Index j, auto lanes) { store(to + j, load(to + j, lanes) + load(from + j, lanes), lanes); });
    }
  }
  for_vectors(0, shape.dim, [&](Index j, auto lanes) { store(sums + j, load(values + j, lanes), lanes); });
}

// Permutations of a vector's lanes.
template <std::size_t... kLane>
Vector swap_neighbours(Vector v, std::index_sequence<kLane...>) {
  return __builtin_shufflevector(v, v, static_cast<int>(kLane ^ 1)...);
}
template <std::size_t... kLane>
Vector repeat_even(Vector v, std::index_sequence<kLane...>) {
  return __builtin_shufflevector(v, v, static_cast<int>(kLane & ~std::size_t{1})...);
}
template <std::size_t... kLane>
Vector repeat_odd(Vector v, std::index_sequence<kLane...>) {
  return __builtin_shufflevector(v, v, static_cast<int>(kLane | 1)...);
}

template <typename T>
void rotate(TokenHeads shape, const T* x, const float* factors, bool conjugate, T* out) {
  constexpr std::make_index_sequence<kWidth> kLanes;
  Vector signs;
  for (Index i = 0; i < kWidth; ++i) signs[i] = (i % 2 == 0) == conjugate ? 1.0F : -1.0F;
  for_vectors(0, shape.head_dim, [&](Index j, auto lanes) {
    const Vector factor = load(factors + j, lanes);
    const Vector real = repeat_even(factor, kLanes), imaginary = repeat_odd(factor, kLanes) * signs;
    for (Index head = 0; head < shape.heads; ++head) {
      const Vector value = load(x + head * shape.head_stride + j, lanes);
      store(out + head * shape.head_dim + j, value * real + swap_neighbours(value, kLanes) * imaginary, lanes);
    }
  });
}

template <typename T>
void rotate_halves(TokenHeads shape, const T* x, const float* factors, bool conjugate, T* out) {
  const Index half = shape.head_dim / 2;
  for_vectors(0, half, [&](Index j, auto lanes) {
    Vector cos = {}, sin = {};
    for (Index i = 0; i < kWidth && j + i < half; ++i) {
      cos[i] = factors[2 * (j + i)];
      sin[i] = factors[2 * (j + i) + 1];
    }
    cos = rounded<T>(cos);
    sin = rounded<T>(conjugate ? -sin : sin);
    for (Index head = 0; head < shape.heads; ++head) {
      const T* const from = x + head * shape.head_stride + j;
      T* const to = out + head * shape.head_dim + j;
      const Vector first = load(from, lanes), second = load(from + half, lanes);
      store(to, rounded<T>(first * cos) - rounded<T>(second * sin), lanes);
      store(to + half, rounded<T>(second * cos) + rounded<T>(first * sin), lanes);
    }
  });
}

// Avoids e^x of a positive x, which may be infinite.
Vector sigmoid_of(Vector x) {
  const Vector e = exponential(x < 0.0F ? x : -x);
  return (x < 0.0F ? e : spread(1.0F)) / (e + 1.0F);
}

template <typename T>
void swiglu(Index count, const T* gate, const T* up, T* out) {
  for_vectors(0, count, [&](Index j, auto lanes) {
    const Vector x = load(gate + j, lanes);
    store(out + j, rounded<T>(x * sigmoid_of(x)) * load(up + j, lanes), lanes);
  });
}

template <typename T>
void swiglu_backward(Index count, const T* out_grad, const T* gate, const T* up, T* gate_grad, T* up_grad) {
  for_vectors(0, count, [&](Index j, auto lanes) {
    const Vector grad = load(out_grad + j, lanes), x = load(gate + j, lanes);
    const Vector sigmoid = sigmoid_of(x);
    store(up_grad + j, grad * rounded<T>(x * sigmoid), lanes);
    const Vector silu_grad = rounded<T>(grad * load(up + j, lanes));
    store(gate_grad + j, silu_grad * (sigmoid * (x * (1.0F - sigmoid) + 1.0F)), lanes);
  });
}

template <typename T>
constexpr FusedKernelsFor<T> kKernelsFor = {rms_norm<T>, add_rms_norm<T>,   rms_norm_backward<T>,
                                            sum_rows<T>, rotate<T>,         rotate_halves<T>,
                                            swiglu<T>,   swiglu_backward<T>};

}  // namespace

extern const FusedKernels kFused = {TITAN_STRING(TITAN_ISA), kKernelsFor<float>, kKernelsFor<BFloat16Bits>};

}  // namespace titan::kernels::TITAN_ISA
