// Compiled with TITAN_ISA (the namespace) and TITAN_VECTOR_BYTES, see CMakeLists.txt.
#include "kernels/memory/part_sum_rows.h"

#include "kernels/memory/stream.h"

namespace titan::kernels::TITAN_ISA {
namespace {

template <typename T>
Vector sum_at(const Parts<T>& parts, Index i) {
  Vector sum = load(parts.parts[0] + i);
  for (Index p = 1; p < parts.num_parts; ++p) sum += load(parts.parts[p] + i);
  return sum;
}

template <typename T>
void sum_each(const Parts<T>& parts, Index begin, Index end, float divisor, float* sum) {
  for (Index i = begin; i < end; ++i) {
    float value = to_float(parts.parts[0][i]);
    for (Index p = 1; p < parts.num_parts; ++p) value += to_float(parts.parts[p][i]);
    sum[i] = value / divisor;
  }
}

template <typename T>
void sum_all(const Parts<T>& parts, float divisor, bool past_caches, float* sum) {
  const Vector divisors = spread(divisor);
  Index i = before_aligned(sum, parts.count);
  sum_each(parts, 0, i, divisor, sum);
  if (past_caches) {
    for (; i + kWidth <= parts.count; i += kWidth) stream(sum + i, sum_at(parts, i) / divisors);
    finish_streams();
  } else {
    for (; i + kWidth <= parts.count; i += kWidth) store(sum + i, sum_at(parts, i) / divisors);
  }
  sum_each(parts, i, parts.count, divisor, sum);
}

}  // namespace

const PartSums kPartSums = {
    .name = TITAN_STRING(TITAN_ISA), .of_float = sum_all<float>, .of_bfloat16 = sum_all<BFloat16Bits>};

}  // namespace titan::kernels::TITAN_ISA
