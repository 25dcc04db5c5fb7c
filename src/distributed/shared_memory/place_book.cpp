#include "distributed/shared_memory/place_book.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "base/error.h"

namespace titan::dist {

PlaceBook::PlaceBook(std::size_t begin, std::size_t end, int most_places)
    : begin_((begin + kPage - 1) / kPage * kPage),
      end_(end),
      end_of_places_(begin_),
      most_places_(static_cast<std::size_t>(most_places)) {}

std::size_t PlaceBook::rounded(std::size_t bytes) {
  return (std::max(bytes, std::size_t{1}) + kPage - 1) / kPage * kPage;
}

// Finds the smallest free place that is at most twice as large as needed; on a tie, the one given back first.
// `is_rested` skips places given back after the last take().
const PlaceBook::Entry* PlaceBook::best_for(std::size_t bytes, bool is_rested) const {
  const Entry* best = nullptr;
  for (const auto& entry : entries_) {
    if (entry.is_taken || entry.bytes < bytes || entry.bytes / 2 > bytes) continue;
    if (is_rested && entry.given_back_at == takes_) continue;
    if (!best || std::tie(entry.bytes, entry.given_back_at) < std::tie(best->bytes, best->given_back_at)) best = &entry;
  }
  return best;
}

bool PlaceBook::has_room_for(std::size_t bytes) const {
  return bytes <= end_ - end_of_places_ && entries_.size() < most_places_;
}

bool PlaceBook::has_place_for(std::size_t bytes) const {
  if (bytes > end_ - begin_) return false;
  bytes = rounded(bytes);
  return has_room_for(bytes) || best_for(bytes, /*is_rested=*/false);
}

std::optional<PlaceBook::Place> PlaceBook::take(std::size_t bytes) {
  if (!has_place_for(bytes)) return std::nullopt;
  bytes = rounded(bytes);
  const auto* chosen = best_for(bytes, /*is_rested=*/true);
  if (!chosen && has_room_for(bytes)) {
    chosen = &entries_.emplace_back(Entry{end_of_places_, bytes, 0, false, 0});
    end_of_places_ += bytes;
  }
  if (!chosen) chosen = best_for(bytes, /*is_rested=*/false);
  const auto number = static_cast<int>(chosen - entries_.data());
  auto& entry = entries_[static_cast<std::size_t>(number)];
  ++takes_;
  entry.is_taken = true;
  return Place{number, ++entry.generation, entry.offset};
}

void PlaceBook::give_back(int number) {
  auto& entry = entries_.at(static_cast<std::size_t>(number));
  TITAN_CHECK(entry.is_taken, "place " + std::to_string(number) + " is given back twice");
  entry.is_taken = false;
  entry.given_back_at = takes_;
}

}  // namespace titan::dist
