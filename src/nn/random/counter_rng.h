// Uniform random tensors as a pure function of seed, stream and the element's global index: the same values on any
// device and in any sharding.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "kernels/portable/philox.h"

namespace titan::nn {

// The stream of a parameter: 64-bit FNV-1a of its name.
constexpr std::uint64_t stream_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// Fills `out` (contiguous float32, any device) with elements first_index, first_index + 1, ... of the stream.
void fill_counter_uniform(at::Tensor out, std::uint64_t seed, std::uint64_t stream, std::int64_t first_index);

}  // namespace titan::nn
