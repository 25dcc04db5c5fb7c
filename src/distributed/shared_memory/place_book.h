// Assigns memory to the outputs of all-gathers that the ranks of a host share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace titan::dist {

// Allocates places in a range of offsets. Every rank has a book of the same range, and all make the same calls in the
// same order, so they choose the same places without communicating. When this rank gives a place back, others often
// still use it, so if possible it is not reused before another take(): the taker would have to wait for them. A place
// keeps its size and serves requests of at least half of it. Not thread-safe.
class PlaceBook {
 public:
  static constexpr std::size_t kPage = 4096;  // no two places share one

  struct Place {
    int number;                // from 0, below `most_places`
    std::uint64_t generation;  // number of times it was taken, including this one
    std::size_t offset;
  };

  PlaceBook(std::size_t begin, std::size_t end, int most_places);

  // Returns nullopt if has_place_for() is false: the range is used up.
  std::optional<Place> take(std::size_t bytes);
  bool has_place_for(std::size_t bytes) const;
  void give_back(int number);
  std::size_t bytes() const { return end_of_places_ - begin_; }  // total size of all places so far; may be resident

 private:
  struct Entry {
    std::size_t offset;
    std::size_t bytes;
    std::uint64_t generation;
    bool is_taken;
    std::uint64_t given_back_at;  // `takes_` at that time
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
