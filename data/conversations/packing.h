// Puts samples of different lengths together into packs of one length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace titan::data {

struct Packs {
  std::vector<std::int64_t> samples;  // of all packs, one after the other
  std::vector<std::size_t> ends;      // where each pack ends in `samples`

  std::int64_t size() const { return static_cast<std::int64_t>(ends.size()); }
  std::span<const std::int64_t> operator[](std::int64_t pack) const;
};

// Packs the samples of `lengths`; those of length 0 are left out. Takes the longest first and puts each where it leaves
// the least room (best fit decreasing): at most 11/9 of the fewest possible packs, and a few more. Samples of one
// length are taken in a fixed random order, so that neighbors in the file do not share a pack. Throws InternalError for
// a length above `capacity`.
Packs pack_best_fit(std::span<const std::int32_t> lengths, std::int64_t capacity);

}  // namespace titan::data
