// Compiled with TITAN_ISA (the namespace) and TITAN_VECTOR_BYTES, see CMakeLists.txt.
#include "kernels/memory/stream_copy_rows.h"

#include "kernels/memory/stream.h"

namespace titan::kernels::TITAN_ISA {
namespace {

// load() is for elements, which are aligned to their size.
Vector load_bytes(const std::byte* from) {
  Vector out;
  std::memcpy(&out, from, sizeof(out));
  return out;
}

void copy(Index bytes, const std::byte* source, std::byte* target) {
  Index i = before_aligned(target, bytes);
  std::memcpy(target, source, static_cast<std::size_t>(i));
  for (; i + TITAN_VECTOR_BYTES <= bytes; i += TITAN_VECTOR_BYTES) stream(target + i, load_bytes(source + i));
  std::memcpy(target + i, source + i, static_cast<std::size_t>(bytes - i));
  finish_streams();
}

template <typename From, typename To>
void cast_each(Index begin, Index end, const From* source, To* target) {
  for (Index i = begin; i < end; ++i) assign(target[i], to_float(source[i]));
}

void narrow_all(Index count, const float* source, BFloat16Bits* target) {
  const auto halves_at = [source](Index i) { return narrow(bfloat16_of(load(source + i)) >> 16); };
  Index i = before_aligned(target, count);
  cast_each(0, i, source, target);
  for (; i + 2 * kWidth <= count; i += 2 * kWidth) {  // two adjacent stores: with AVX-512 a full cache line
    stream(target + i, halves_at(i));
    stream(target + i + kWidth, halves_at(i + kWidth));
  }
  cast_each(i, count, source, target);
  finish_streams();
}

void widen_all(Index count, const BFloat16Bits* source, float* target) {
  Index i = before_aligned(target, count);
  cast_each(0, i, source, target);
  for (; i + kWidth <= count; i += kWidth) stream(target + i, load(source + i));
  cast_each(i, count, source, target);
  finish_streams();
}

}  // namespace

const StreamCopies kStreamCopies = {
    .name = TITAN_STRING(TITAN_ISA), .copy = copy, .narrow = narrow_all, .widen = widen_all};

}  // namespace titan::kernels::TITAN_ISA
