// Notation: the register holds a polynomial over GF(2) whose highest power is bit 0, the first bit of the data. A block
// B followed by d more bits counts as B * x^d mod P. A 16-byte block B = low * x^64 + high gets there with one
// multiplication per half. PCLMULQDQ of two such reflected halves gives their product divided by x, so the constants
// are x^(d + 63) and x^(d - 1) mod P.
#include <immintrin.h>

#include <cstring>

#include "checkpoint/io/crc32_fold.h"

namespace titan::checkpoint {
namespace {

// x^power mod P as the upper half of a reflected 64-bit polynomial.
constexpr std::uint64_t power_of_x(int power) {
  std::uint32_t value = 0x80000000u;  // x^0
  for (int i = 0; i < power; ++i) value = (value >> 1) ^ ((value & 1) != 0 ? 0xEDB88320u : 0u);
  return std::uint64_t{value} << 32;
}

struct Shift {
  std::uint64_t low, high;  // for the two halves of a block
};
template <int kBits>
constexpr Shift kShift = {power_of_x(kBits + 63), power_of_x(kBits - 1)};

#define TITAN_CLMUL __attribute__((target("pclmul,sse4.1")))

TITAN_CLMUL inline __m128i load(const unsigned char* bytes) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
}

TITAN_CLMUL inline __m128i constant(const Shift& shift) {
  return _mm_set_epi64x(static_cast<long long>(shift.high), static_cast<long long>(shift.low));
}

// Returns `block` shifted ahead, added to `there`.
TITAN_CLMUL inline __m128i fold(__m128i block, __m128i shift, __m128i there) {
  const __m128i low = _mm_clmulepi64_si128(block, shift, 0x00);
  const __m128i high = _mm_clmulepi64_si128(block, shift, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), there);
}

}  // namespace

bool can_fold_crc32() {
  static const bool kCan = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
  return kCan;
}

TITAN_CLMUL std::array<unsigned char, 16> fold_crc32(std::uint32_t state, const void* data, std::size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  __m128i a = _mm_xor_si128(load(bytes), _mm_cvtsi32_si128(static_cast<int>(state)));
  __m128i b = load(bytes + 16), c = load(bytes + 32), d = load(bytes + 48);
  const __m128i by_64_bytes = constant(kShift<512>);
  // Folds four blocks in parallel: with a single one, each multiplication would wait for the previous one.
  for (bytes += 64, size -= 64; size > 0; bytes += 64, size -= 64) {
    a = fold(a, by_64_bytes, load(bytes));
    b = fold(b, by_64_bytes, load(bytes + 16));
    c = fold(c, by_64_bytes, load(bytes + 32));
    d = fold(d, by_64_bytes, load(bytes + 48));
  }
  const __m128i by_16_bytes = constant(kShift<128>);
  const __m128i all = fold(fold(fold(a, by_16_bytes, b), by_16_bytes, c), by_16_bytes, d);
  std::array<unsigned char, 16> result;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(result.data()), all);
  return result;
}

}  // namespace titan::checkpoint
