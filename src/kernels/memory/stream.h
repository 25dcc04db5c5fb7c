// Streaming stores, which go to memory past the caches, for files that are compiled once per instruction set
// (vector.h).
#pragma once

#include <algorithm>

#include "kernels/cpu/simd/vector.h"

namespace titan::kernels::TITAN_ISA {
namespace {

// Stores without reading the cache line first or evicting others. `to` must be aligned to the size of `value`.
#if TITAN_VECTOR_BYTES == 64
inline void stream(void* to, Vector value) { _mm512_stream_ps(static_cast<float*>(to), value); }
inline void stream(void* to, Halves value) {
  _mm256_stream_si256(static_cast<__m256i*>(to), reinterpret_cast<__m256i>(value));
}
inline void finish_streams() { _mm_sfence(); }
#elif TITAN_VECTOR_BYTES == 32
inline void stream(void* to, Vector value) { _mm256_stream_ps(static_cast<float*>(to), value); }
inline void stream(void* to, Halves value) {
  _mm_stream_si128(static_cast<__m128i*>(to), reinterpret_cast<__m128i>(value));
}
inline void finish_streams() { _mm_sfence(); }
#else
template <typename Value>
void stream(void* to, Value value) {
  std::memcpy(to, &value, sizeof value);
}
inline void finish_streams() {}
#endif

// Returns the number of elements before the first one that is aligned to a vector's size, at most `count`.
template <typename T>
Index before_aligned(const T* target, Index count) {
  const auto past = static_cast<Index>(reinterpret_cast<std::uintptr_t>(target) % TITAN_VECTOR_BYTES);
  return std::min(count, past == 0 ? 0 : (TITAN_VECTOR_BYTES - past) / static_cast<Index>(sizeof(T)));
}

}  // namespace
}  // namespace titan::kernels::TITAN_ISA
