#include "data/order/permutation.h"

#include <bit>
#include <string>

#include "base/error.h"
#include "data/io/hash.h"

namespace titan::data {

Permutation::Permutation(std::int64_t size, std::uint64_t key) : size_(static_cast<std::uint64_t>(size)) {
  TITAN_CHECK(size > 0, "a permutation of " + std::to_string(size));
  const auto bits = static_cast<unsigned>(std::bit_width(size_ - 1));
  half_bits_ = bits < 2 ? 1 : (bits + 1) / 2;
  half_mask_ = (std::uint64_t{1} << half_bits_) - 1;
  for (auto& round_key : round_keys_) round_key = key = mix_bits(key);
}

std::uint64_t Permutation::round_trip(std::uint64_t value) const {
  std::uint64_t left = value >> half_bits_;
  std::uint64_t right = value & half_mask_;
  for (const std::uint64_t round_key : round_keys_) {
    const std::uint64_t mixed = left ^ (mix_bits(right ^ round_key) & half_mask_);
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

std::int64_t Permutation::operator()(std::int64_t index) const {
  auto value = static_cast<std::uint64_t>(index);
  TITAN_CHECK(value < size_, "index " + std::to_string(index) + " of a permutation of " + std::to_string(size_));
  do {
    value = round_trip(value);
  } while (value >= size_);
  return static_cast<std::int64_t>(value);
}

}  // namespace titan::data
