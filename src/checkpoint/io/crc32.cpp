#include "checkpoint/io/crc32.h"

#include <array>
#include <cstdio>
#include <cstring>

#include "checkpoint/io/crc32_fold.h"

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

// Returns the register after `size` more bytes.
std::uint32_t advance(std::uint32_t state, const unsigned char* bytes, std::size_t size) {
  while (size >= kSlices) {
    std::array<std::uint32_t, 4> words;
    std::memcpy(words.data(), bytes, kSlices);  // little-endian, as the format itself
    words[0] ^= state;
    state = 0;
    for (std::size_t w = 0; w < 4; ++w) {
      for (std::size_t b = 0; b < 4; ++b) state ^= kTables[kSlices - 1 - (4 * w + b)][(words[w] >> (8 * b)) & 0xFF];
    }
    bytes += kSlices;
    size -= kSlices;
  }
  for (; size > 0; --size) state = (state >> 8) ^ kTables[0][(state ^ *bytes++) & 0xFF];
  return state;
}

// Multiplies polynomials mod P, reflected: bit 31 is x^0.
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? 0xEDB88320u : 0u);
  }
  return product;
}

// Returns x^(8 * 2^k) as entry k: the effect of 2^k following bytes on a checksum.
constexpr std::array<std::uint32_t, 64> make_byte_powers() {
  std::array<std::uint32_t, 64> powers{};
  powers[0] = 0x00800000u;  // x^8
  for (std::size_t k = 1; k < powers.size(); ++k) powers[k] = multiply(powers[k - 1], powers[k - 1]);
  return powers;
}

constexpr std::array<std::uint32_t, 64> kBytePowers = make_byte_powers();

}  // namespace

std::uint32_t crc32_plain(std::uint32_t crc, const void* data, std::size_t size) {
  return ~advance(~crc, static_cast<const unsigned char*>(data), size);
}

std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t size) {
  if (size < 2 * kCrcFoldBytes || !can_fold_crc32()) return crc32_plain(crc, data, size);
  const std::size_t folded = size - size % kCrcFoldBytes;
  const auto rest = fold_crc32(~crc, data, folded);
  const std::uint32_t state = advance(0, rest.data(), rest.size());
  return ~advance(state, static_cast<const unsigned char*>(data) + folded, size - folded);
}

std::uint32_t crc32_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_size) {
  for (std::size_t k = 0; first != 0 && second_size != 0; ++k, second_size >>= 1) {
    if ((second_size & 1) != 0) first = multiply(first, kBytePowers[k]);
  }
  return first ^ second;
}

std::string crc32_text(std::uint32_t crc) {
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%08x", crc);
  return text.data();
}

}  // namespace titan::checkpoint
