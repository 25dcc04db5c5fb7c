// The inner loop of crc32() for processors that multiply without carries. One .cpp for x86-64, a stub for all others;
// CMake picks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace titan::checkpoint {

inline constexpr std::size_t kCrcFoldBytes = 64;

// Whether this processor can; asked at run time.
bool can_fold_crc32();

// Sixteen bytes that a register of 0 takes to the value to which `data` takes `state` (the register, not the inverted
// checksum). `size`: a positive multiple of kCrcFoldBytes. Only where can_fold_crc32().
std::array<unsigned char, 16> fold_crc32(std::uint32_t state, const void* data, std::size_t size);

}  // namespace titan::checkpoint
