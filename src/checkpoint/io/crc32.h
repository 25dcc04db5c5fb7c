// The CRC-32 of zip archives (polynomial 0x04C11DB7, reflected).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace titan::checkpoint {

// Continues `crc` (0 at the start) over `size` bytes. Uses the processor's carry-less multiplication if it has one.
std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t size);

// Computes the same with tables only: for processors without that instruction, and as a reference in tests.
std::uint32_t crc32_plain(std::uint32_t crc, const void* data, std::size_t size);

// Returns the checksum of two consecutive pieces from their checksums.
std::uint32_t crc32_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_size);

// Formats a checksum: "0a1b2c3d".
std::string crc32_text(std::uint32_t crc);

}  // namespace titan::checkpoint
