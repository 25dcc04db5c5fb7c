// Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11): random numbers as a pure
// function of key and counter. Plain constexpr code that sees no torch, so that host and device compile it and compute
// the same bits.
#pragma once

#include <array>
#include <cstdint>

namespace titan::kernels {

constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

// The random words of elements 4 * block ... 4 * block + 3 of a stream.
constexpr std::array<std::uint32_t, 4> philox_block(std::uint64_t seed, std::uint64_t stream, std::uint64_t block) {
  return philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                     static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)},
                    {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

// Uniform in the open interval (0, 1): the middle of one of 2^23 equal cells, exact in float32.
constexpr float uniform_of(std::uint32_t word) { return (static_cast<float>(word >> 9) + 0.5f) * 0x1p-23f; }

// Element `index` of `stream`.
constexpr float counter_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return uniform_of(philox_block(seed, stream, index / 4)[index % 4]);
}

}  // namespace titan::kernels
