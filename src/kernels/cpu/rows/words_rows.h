// Sums of words times factors, for hashes of memory (train/guests/numerics/bits_hash.h), on one thread. words_rows.cpp
// is compiled once for each set of instructions, into a namespace of its own, and includes nothing of torch
// (attention/heads.h says why).
#pragma once

#include <cstdint>

namespace titan::kernels {

struct WordSums {
  const char* name;
  // Returns the sum of (w[i] ^ (w[i] >> 32)) * factors[i] over `count` words of 8 bytes from `words`, which may begin
  // at any byte, modulo 2^64. The shift fills up with the sign of w[i], as that of torch's operator does.
  std::uint64_t (*sum)(std::int64_t count, const void* words, const std::uint64_t* factors);
};

// Builds per instruction set. Call only those whose instructions this machine has.
namespace plain {
extern const WordSums kWordSums;
}
namespace avx2 {
extern const WordSums kWordSums;
}
namespace avx512 {
extern const WordSums kWordSums;
}

}  // namespace titan::kernels
