// Divides by a number that stays the same for many dividends: multiplies by its inverse (Granlund and Montgomery,
// "Division by invariant integers using multiplication", PLDI 1994, figure 4.1). A GPU has no instruction that divides
// integers. Plain constexpr code without torch, so that host and device compile it.
#pragma once

#include <cstdint>

namespace titan::kernels {

// Divides dividends from 0 to kMost by a number from 1 to kMost.
class Divisor {
 public:
  static constexpr std::uint32_t kMost = 0x7FFFFFFF;

  constexpr Divisor() = default;  // divides by 1
  constexpr explicit Divisor(std::uint32_t divisor) : divisor_(divisor) {
    while ((std::uint32_t{1} << shift_) < divisor) ++shift_;
    // 2^32 * (2^shift - divisor) / divisor + 1 is less than 2^32, because 2^shift < 2 * divisor.
    const std::uint64_t excess = (std::uint64_t{1} << shift_) - divisor;
    multiplier_ = static_cast<std::uint32_t>((excess << 32) / divisor + 1);
  }

  constexpr std::uint32_t quotient(std::uint32_t dividend) const {
    const auto high = static_cast<std::uint32_t>((std::uint64_t{dividend} * multiplier_) >> 32);
    return (high + dividend) >> shift_;  // high <= dividend, so that the sum of both fits 32 bits
  }

  // Returns the remainder of a dividend whose quotient is known.
  constexpr std::uint32_t remainder(std::uint32_t dividend, std::uint32_t quotient) const {
    return dividend - quotient * divisor_;
  }

 private:
  std::uint32_t divisor_ = 1, multiplier_ = 1, shift_ = 0;
};

}  // namespace titan::kernels
