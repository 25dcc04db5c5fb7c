#include "checkpoint/crc32.h"

#include <array>
#include <cstring>

namespace titan::checkpoint {
namespace {

constexpr std::size_t kSlices = 16;
using Tables = std::array<std::array<std::uint32_t, 256>, kSlices>;

// Table t gives the effect of a byte that is followed by t zero bytes, so 16 bytes cost 16 independent look-ups.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320u : 0u);
    tables[0][byte] = crc;
  }
  for (std::size_t t = 1; t < kSlices; ++t) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t previous = tables[t - 1][byte];
      tables[t][byte] = (previous >> 8) ^ tables[0][previous & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  crc = ~crc;
  while (size >= kSlices) {
    std::array<std::uint32_t, 4> words;
    std::memcpy(words.data(), bytes, kSlices);  // little-endian, as the format itself
    words[0] ^= crc;
    crc = 0;
    for (std::size_t w = 0; w < 4; ++w) {
      for (std::size_t b = 0; b < 4; ++b) crc ^= kTables[kSlices - 1 - (4 * w + b)][(words[w] >> (8 * b)) & 0xFF];
    }
    bytes += kSlices;
    size -= kSlices;
  }
  for (; size > 0; --size) crc = (crc >> 8) ^ kTables[0][(crc ^ *bytes++) & 0xFF];
  return ~crc;
}

}  // namespace titan::checkpoint
