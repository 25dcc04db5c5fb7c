#include "data/conversations/packing.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "data/io/hash.h"

namespace titan::data {
namespace {

// Returns the samples to pack, the longest first.
std::vector<std::int64_t> longest_first(std::span<const std::int32_t> lengths) {
  std::vector<std::int64_t> order;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    if (lengths[i] > 0) order.push_back(static_cast<std::int64_t>(i));
  const auto rank = [&](std::int64_t sample) {
    return std::pair(-lengths[static_cast<std::size_t>(sample)], mix_bits(static_cast<std::uint64_t>(sample)));
  };
  std::ranges::sort(order, {}, rank);
  return order;
}

}  // namespace

std::span<const std::int64_t> Packs::operator[](std::int64_t pack) const {
  const auto at = static_cast<std::size_t>(pack);
  const std::size_t begin = at == 0 ? 0 : ends[at - 1];
  return std::span(samples).subspan(begin, ends[at] - begin);
}

Packs pack_best_fit(std::span<const std::int32_t> lengths, std::int64_t capacity) {
  std::vector<std::vector<std::int64_t>> packs;
  std::vector<std::vector<std::size_t>> by_room(static_cast<std::size_t>(capacity) + 1);  // packs with that much room
  std::set<std::size_t> rooms;                                                            // that some pack has
  for (const std::int64_t sample : longest_first(lengths)) {
    const auto length = static_cast<std::size_t>(lengths[static_cast<std::size_t>(sample)]);
    TITAN_CHECK(length <= static_cast<std::size_t>(capacity), "a sample of " + std::to_string(length) + " tokens");
    auto room = static_cast<std::size_t>(capacity);
    std::size_t pack = packs.size();
    if (const auto least = rooms.lower_bound(length); least != rooms.end()) {
      room = *least;
      pack = by_room[room].back();
      by_room[room].pop_back();
      if (by_room[room].empty()) rooms.erase(least);
    } else {
      packs.emplace_back();
    }
    packs[pack].push_back(sample);
    by_room[room - length].push_back(pack);
    rooms.insert(room - length);
  }
  Packs out;
  for (const auto& pack : packs) {
    out.samples.insert(out.samples.end(), pack.begin(), pack.end());
    out.ends.push_back(out.samples.size());
  }
  return out;
}

}  // namespace titan::data
