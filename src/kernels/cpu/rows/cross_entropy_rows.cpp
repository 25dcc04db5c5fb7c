// Compiled with TITAN_ISA (the namespace) and TITAN_VECTOR_BYTES, see CMakeLists.txt.
#include "kernels/cpu/rows/cross_entropy_rows.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/simd/vector.h"

namespace titan::kernels::TITAN_ISA {
namespace {

constexpr Index kChains = 4;               // independent sums, so that additions do not wait for each other
constexpr Index kStep = kChains * kWidth;  // elements
constexpr Index kBlock = 32 * kStep;       // elements per partial sum: keeps the sum of a long row exact
constexpr float kLowest = -std::numeric_limits<float>::infinity();  // e^kLowest is 0

// Loads the last `count` elements of a row, fewer than a vector, padded with values whose e^x is 0.
template <typename T>
Vector load_end(const T* from, Index count) {
  float values[kWidth];
  for (Index i = 0; i < kWidth; ++i) values[i] = i < count ? to_float(from[i]) : kLowest;
  return load(values);
}

Vector larger(Vector a, Vector b) { return a > b ? a : b; }

// Returns the largest logit, ignoring NaNs: the sum that follows has them.
template <typename T>
float largest_of(const T* row, Index vocab) {
  Vector largest[kChains];
  for (Vector& each : largest) each = spread(kLowest);
  Index j = 0;
  for (; j + kStep <= vocab; j += kStep)
    for (Index c = 0; c < kChains; ++c) largest[c] = larger(load(row + j + c * kWidth), largest[c]);
  for (; j + kWidth <= vocab; j += kWidth) largest[0] = larger(load(row + j), largest[0]);
  if (j < vocab) largest[1] = larger(load_end(row + j, vocab - j), largest[1]);
  const Vector all = larger(larger(largest[0], largest[1]), larger(largest[2], largest[3]));
  float out = all[0];
  for (Index i = 1; i < kWidth; ++i) out = all[i] > out ? all[i] : out;
  return out;
}

// Returns the sum of e^(row[j] - shift).
template <typename T>
float sum_of_exponentials(const T* row, Index vocab, float shift) {
  Vector total = {};
  Index j = 0;
  while (j + kStep <= vocab) {
    const Index end = j + kBlock <= vocab ? j + kBlock : vocab;
    Vector sums[kChains] = {};
    for (; j + kStep <= end; j += kStep)
      for (Index c = 0; c < kChains; ++c) sums[c] += exponential(load(row + j + c * kWidth) - shift);
    total += (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
  for (; j + kWidth <= vocab; j += kWidth) total += exponential(load(row + j) - shift);
  if (j < vocab) total += exponential(load_end(row + j, vocab - j) - shift);
  float sum = 0;
  for (Index i = 0; i < kWidth; ++i) sum += total[i];
  return sum;
}

template <typename T>
void forward(const LossRows<T>& rows, SoftmaxStats* stats, double* losses) {
  for (Index r = 0; r < rows.rows; ++r) {
    losses[r] = 0;
    if (rows.labels[r] < 0) continue;
    const T* const row = rows.logits + r * rows.vocab;
    const float largest = largest_of(row, rows.vocab);
    const float sum = sum_of_exponentials(row, rows.vocab, largest);
    stats[r] = {largest, sum};
    const double of_label = rows.labels[r] < rows.vocab ? to_float(row[rows.labels[r]]) : 0;
    losses[r] = std::log(static_cast<double>(sum)) + (static_cast<double>(largest) - of_label);
  }
}

template <typename T>
void backward(const LossRows<T>& rows, const SoftmaxStats* stats, float loss_grad, T* grads) {
  for (Index r = 0; r < rows.rows; ++r) {
    const T* const row = rows.logits + r * rows.vocab;
    T* const grad = grads + r * rows.vocab;
    const Index label = rows.labels[r];
    if (label < 0) {
      std::memset(grad, 0, static_cast<std::size_t>(rows.vocab) * sizeof(T));
      continue;
    }
    const auto [largest, sum] = stats[r];
    const bool is_here = label < rows.vocab;
    // Computed before the row is overwritten: `grad` may be the same memory.
    const double of_label = is_here ? std::exp(static_cast<double>(to_float(row[label])) - largest) / sum : 0;
    const float scale = loss_grad / sum;
    Index j = 0;
    for (; j + kWidth <= rows.vocab; j += kWidth) store(grad + j, exponential(load(row + j) - largest) * scale);
    if (j < rows.vocab) {
      const Vector last = exponential(load_end(row + j, rows.vocab - j) - largest) * scale;
      for (Index i = 0; j + i < rows.vocab; ++i) assign(grad[j + i], last[i]);
    }
    if (is_here) assign(grad[label], static_cast<float>((of_label - 1) * loss_grad));
  }
}

}  // namespace

extern const CrossEntropyKernels kCrossEntropy = {TITAN_STRING(TITAN_ISA), forward<float>, forward<BFloat16Bits>,
                                                  backward<float>, backward<BFloat16Bits>};

}  // namespace titan::kernels::TITAN_ISA
