// A hash that is the same on every machine.
#pragma once

#include <cstdint>

namespace titan::data {

// Mixes 64 bits: every bit of the result depends on every bit of `value`. A bijection; mix_bits(0) is not 0. This is
// the step and the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
// 2014).
inline std::uint64_t mix_bits(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace titan::data
