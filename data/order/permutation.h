// Shuffling without memory: a keyed permutation of [0, size).
#pragma once

#include <array>
#include <cstdint>

namespace titan::data {

// A Feistel network over the smallest even number of bits that holds `size`, repeated until the value is below `size`
// (four steps on average at most). Depends only on `size` and `key`, on every machine.
class Permutation {
 public:
  Permutation(std::int64_t size, std::uint64_t key);

  // Returns the image of `index`; a bijection of [0, size).
  std::int64_t operator()(std::int64_t index) const;

 private:
  static constexpr int kRounds = 6;

  std::uint64_t round_trip(std::uint64_t value) const;

  std::uint64_t size_;
  unsigned half_bits_ = 1;
  std::uint64_t half_mask_ = 1;
  std::array<std::uint64_t, kRounds> round_keys_{};
};

}  // namespace titan::data
