// Inner loop of crc32() for processors with carry-less multiplication. One .cpp for x86-64, a stub for all others;
// CMake picks one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace titan::checkpoint {

inline constexpr std::size_t kCrcFoldBytes = 64;

// True if this processor has it; checked at run time.
bool can_fold_crc32();

// Folds `data` into 16 bytes whose CRC from register 0 equals the CRC of `data` from `state` (the register, not the
// inverted checksum). `size` must be a positive multiple of kCrcFoldBytes. Requires can_fold_crc32().
std::array<unsigned char, 16> fold_crc32(std::uint32_t state, const void* data, std::size_t size);

}  // namespace titan::checkpoint
