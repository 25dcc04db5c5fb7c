// Float vectors for files that are compiled once per instruction set, with TITAN_ISA (the namespace) and
// TITAN_VECTOR_BYTES defined (CMakeLists.txt). Everything is in an anonymous namespace, so that the linker never takes
// code for newer processors in place of code for older ones. Only such files include this; they do not include torch,
// for the same reason.
#pragma once

#include <cstdint>
#include <cstring>

#if TITAN_VECTOR_BYTES > 16
#include <immintrin.h>
#endif

#include "kernels/portable/half_bits.h"

// The name of TITAN_ISA, for the kernels' names: TITAN_STRING(TITAN_ISA).
#define TITAN_STRING_OF(name) #name
#define TITAN_STRING(name) TITAN_STRING_OF(name)

namespace titan::kernels::TITAN_ISA {
namespace {

using Index = std::int64_t;
using Word = std::uint32_t;  // two bfloat16, the first in the low half

constexpr Index kWidth = TITAN_VECTOR_BYTES / 4;

typedef float Vector __attribute__((vector_size(TITAN_VECTOR_BYTES)));
typedef std::uint32_t Words __attribute__((vector_size(TITAN_VECTOR_BYTES)));
typedef std::uint16_t Halves __attribute__((vector_size(TITAN_VECTOR_BYTES / 2)));
typedef float UnalignedVector __attribute__((vector_size(TITAN_VECTOR_BYTES), aligned(4), may_alias));
typedef std::uint16_t UnalignedHalves __attribute__((vector_size(TITAN_VECTOR_BYTES / 2), aligned(2), may_alias));

inline Vector load(const float* from) { return *reinterpret_cast<const UnalignedVector*>(from); }
inline void store(float* to, Vector value) { *reinterpret_cast<UnalignedVector*>(to) = value; }

// Convert halves to words and back. __builtin_convertvector would need several instructions.
#if TITAN_VECTOR_BYTES == 64
inline Words widen(Halves halves) {
  return reinterpret_cast<Words>(_mm512_maskz_cvtepu16_epi32(0xFFFF, reinterpret_cast<__m256i>(halves)));
}
inline Halves narrow(Words words) {
  return reinterpret_cast<Halves>(_mm512_maskz_cvtepi32_epi16(0xFFFF, reinterpret_cast<__m512i>(words)));
}
#elif TITAN_VECTOR_BYTES == 32
inline Words widen(Halves halves) {
  return reinterpret_cast<Words>(_mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(halves)));
}
inline Halves narrow(Words words) {  // words are at most 0xFFFF
  const __m256i all = reinterpret_cast<__m256i>(words);
  return reinterpret_cast<Halves>(_mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)));
}
#else
inline Words widen(Halves halves) { return __builtin_convertvector(halves, Words); }
inline Halves narrow(Words words) { return __builtin_convertvector(words, Halves); }
#endif

inline Halves load_halves(const void* from) { return *static_cast<const UnalignedHalves*>(from); }
inline void store_halves(void* to, Halves halves) { *static_cast<UnalignedHalves*>(to) = halves; }

inline Vector load(const BFloat16Bits* from) { return reinterpret_cast<Vector>(widen(load_halves(from)) << 16); }
// Returns words whose high half is the bfloat16: rounded to nearest, ties to even; NaN stays NaN.
inline Words bfloat16_of(Vector value) {
  const Words bits = reinterpret_cast<Words>(value);
  return value != value ? Words{} + 0x7FC00000 : bits + 0x7FFF + ((bits >> 16) & 1);
}
inline void store(BFloat16Bits* to, Vector value) { store_halves(to, narrow(bfloat16_of(value) >> 16)); }

// float16: loads are exact, stores round to nearest, ties to even.
#if TITAN_VECTOR_BYTES == 64
inline Vector load(const Float16Bits* from) {
  return reinterpret_cast<Vector>(_mm512_maskz_cvtph_ps(0xFFFF, reinterpret_cast<__m256i>(load_halves(from))));
}
inline void store(Float16Bits* to, Vector value) {
  const __m256i halves = _mm512_maskz_cvtps_ph(0xFFFF, reinterpret_cast<__m512>(value), _MM_FROUND_TO_NEAREST_INT);
  store_halves(to, reinterpret_cast<Halves>(halves));
}
#elif TITAN_VECTOR_BYTES == 32
inline Vector load(const Float16Bits* from) {
  return reinterpret_cast<Vector>(_mm256_cvtph_ps(reinterpret_cast<__m128i>(load_halves(from))));
}
inline void store(Float16Bits* to, Vector value) {
  const __m128i halves = _mm256_cvtps_ph(reinterpret_cast<__m256>(value), _MM_FROUND_TO_NEAREST_INT);
  store_halves(to, reinterpret_cast<Halves>(halves));
}
#else
inline Vector load(const Float16Bits* from) {
  const Words halves = widen(load_halves(from)), magnitude = halves & 0x7FFF;
  // The bits are a float32 with float16's exponent, whose bias is smaller by 112. The multiplication is exact, for
  // subnormals too.
  const Vector scaled = reinterpret_cast<Vector>(magnitude << 13) * 0x1p112F;
  const Words bits = reinterpret_cast<Words>(scaled);
  const Words value = magnitude >= 0x7C00 ? bits | 0x7F800000 : bits;
  return reinterpret_cast<Vector>(value | ((halves & 0x8000) << 16));
}
inline void store(Float16Bits* to, Vector value) {
  const Words bits = reinterpret_cast<Words>(value), magnitude = bits & 0x7FFFFFFF;
  // Subnormals: adding a number whose last place is float16's smallest rounds to that place.
  const Words last_place = Words{} + 0x3F000000;
  const Vector rounded = reinterpret_cast<Vector>(magnitude) + reinterpret_cast<Vector>(last_place);
  const Words subnormal = reinterpret_cast<Words>(rounded) - last_place;
  const Words normal = (magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
  const Words special = magnitude > 0x7F800000 ? Words{} + 0x7E00 : Words{} + 0x7C00;
  const Words finite = magnitude < 0x38800000 ? subnormal : normal;
  store_halves(to, narrow((magnitude >= 0x47800000 ? special : finite) | ((bits >> 16) & 0x8000)));
}
#endif
// Returns the value as it reads back after being stored as T.
template <typename T>
Vector rounded(Vector value);
template <>
inline Vector rounded<float>(Vector value) {
  return value;
}
template <>
inline Vector rounded<BFloat16Bits>(Vector value) {
  return reinterpret_cast<Vector>(bfloat16_of(value) & 0xFFFF0000);
}

// Returns a vector with `value` in each lane.
inline Vector spread(float value) {
#if TITAN_VECTOR_BYTES == 64
  return reinterpret_cast<Vector>(_mm512_set1_ps(value));
#elif TITAN_VECTOR_BYTES == 32
  return reinterpret_cast<Vector>(_mm256_set1_ps(value));
#else
  return Vector{value, value, value, value};
#endif
}

inline float to_float(float value) { return value; }
inline float to_float(BFloat16Bits value) {
  const std::uint32_t bits = std::uint32_t{value.bits} << 16;
  float out;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}
inline void assign(float& to, float value) { to = value; }
inline void assign(BFloat16Bits& to, float value) {  // rounds to nearest, ties to even; NaN stays NaN
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  to.bits =
      value != value ? std::uint16_t{0x7FC0} : static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// e^x for x <= 0, to 2 units in the last place; 0 below -87, where the result would be subnormal. Range reduction to
// |r| <= ln(2) / 2 and the polynomial of Cephes' expf.
inline Vector exponential(Vector x) {
  const Vector magic = spread(12582912.0F);  // 1.5 * 2^23: adding it rounds to an integer, which is in the low bits
  const Vector shifted = x * 1.44269504088896341F + magic;
  const Vector n = shifted - magic;
  const Vector r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  Vector p = spread(1.9875691500e-4F);
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const Words exponent = (reinterpret_cast<Words>(shifted) - 0x4B400000U) << 23;
  const Words bits = reinterpret_cast<Words>(p) + exponent;
  const Vector result = reinterpret_cast<Vector>(bits);
  return x < -87.0F ? spread(0.0F) : result;  // NaN stays NaN
}

inline float sum_of(Vector value) {
  float sums[kWidth];
  store(sums, value);
  for (Index half = kWidth / 2; half > 0; half /= 2)
    for (Index i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

// The valid lanes of a vector: all, or the first few at the end of a row (the others are read as zeros).
struct Whole {};
struct Part {
  Index lanes;
};
template <typename T>
Vector load(const T* from, Whole) {
  return load(from);
}
template <typename T>
Vector load(const T* from, Part part) {
  T values[kWidth] = {};
  for (Index i = 0; i < part.lanes; ++i) values[i] = from[i];
  return load(values);
}
template <typename T>
void store(T* to, Vector value, Whole) {
  store(to, value);
}
template <typename T>
void store(T* to, Vector value, Part part) {
  T values[kWidth];
  store(values, value);
  for (Index i = 0; i < part.lanes; ++i) to[i] = values[i];
}

// Calls body(j, Whole or Part) for every vector of a row of `count` elements, from `begin` on.
template <typename Body>
void for_vectors(Index begin, Index count, const Body& body) {
  Index j = begin;
  for (; j + kWidth <= count; j += kWidth) body(j, Whole{});
  if (j < count) body(j, Part{count - j});
}

inline Index round_up(Index value, Index to) { return (value + to - 1) / to * to; }

}  // namespace
}  // namespace titan::kernels::TITAN_ISA
