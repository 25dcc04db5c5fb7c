// Where the outputs of all-gathers lie that exist once for all ranks of a host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace titan::dist {

// Places in a range of offsets. Every rank has a book of the same range; all make the same calls in the same order, and
// so choose the same places without a word between them. A rank that gives a place back is rarely the last: the place is
// not taken again before another was, so that who takes it seldom has to wait for the others. A place keeps its size,
// and is given to who needs at least half of it. Not safe from several threads.
class PlaceBook {
 public:
  static constexpr std::size_t kPage = 4096;  // no two places share one

  struct Place {
    int number;                // from 0, below `most_places`
    std::uint64_t generation;  // how often it was taken, this time included
    std::size_t offset;
  };

  PlaceBook(std::size_t begin, std::size_t end, int most_places);

  // Nothing when the range is used up, of which has_place_for() tells before.
  std::optional<Place> take(std::size_t bytes);
  bool has_place_for(std::size_t bytes) const;
  void give_back(int number);
  std::size_t bytes() const { return end_of_places_ - begin_; }  // of all places so far: what may be resident

 private:
  struct Entry {
    std::size_t offset;
    std::size_t bytes;
    std::uint64_t generation;
    bool is_taken;
    std::uint64_t given_back_at;  // `takes_` then
  };
  static std::size_t rounded(std::size_t bytes);
  const Entry* best_for(std::size_t bytes, bool is_rested) const;
  bool has_room_for(std::size_t bytes) const;

  std::vector<Entry> entries_;
  std::size_t begin_, end_, end_of_places_;
  std::size_t most_places_;
  std::uint64_t takes_ = 0;
};

}  // namespace titan::dist
