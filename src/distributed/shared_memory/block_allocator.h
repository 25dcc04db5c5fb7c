// Assigns memory to the outputs of all-gathers that the ranks of a host share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace titan::dist {

// Allocates blocks in a range of offsets. Every rank has an allocator of the same range, and all make the same calls in
// the same order, so they choose the same blocks without communicating. When this rank frees a block, others often
// still use it, so if possible the next allocate() does not return it: its caller would have to wait for them. A block
// keeps its size and serves requests of at least half of it. Not thread-safe.
class BlockAllocator {
 public:
  static constexpr std::size_t kPage = 4096;  // no two blocks share one

  struct Block {
    int number;                // from 0, below `max_blocks`
    std::uint64_t generation;  // number of times it was allocated, including this one
    std::size_t offset;
  };

  BlockAllocator(std::size_t begin, std::size_t end, int max_blocks);

  // Returns nullopt if can_allocate() is false: the range is used up.
  std::optional<Block> allocate(std::size_t bytes);
  bool can_allocate(std::size_t bytes) const;
  void free(int number);
  std::size_t bytes() const { return end_of_blocks_ - begin_; }  // total size of all blocks so far; may be resident

 private:
  struct Entry {
    std::size_t offset;
    std::size_t bytes;
    std::uint64_t generation;
    bool is_allocated;
    std::uint64_t freed_at;  // `allocations_` at that time
  };
  static std::size_t rounded(std::size_t bytes);
  const Entry* best_for(std::size_t bytes, bool is_rested) const;
  bool has_room_for(std::size_t bytes) const;

  std::vector<Entry> entries_;
  std::size_t begin_, end_, end_of_blocks_;
  std::size_t max_blocks_;
  std::uint64_t allocations_ = 0;
};

}  // namespace titan::dist
