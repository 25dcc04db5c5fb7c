// The CRC-32 of zip archives (polynomial 0x04C11DB7, reflected).
#pragma once

#include <cstddef>
#include <cstdint>

namespace titan::checkpoint {

// Continues `crc` (0 at the start) over `size` bytes.
std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t size);

}  // namespace titan::checkpoint
