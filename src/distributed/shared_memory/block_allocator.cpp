#include "distributed/shared_memory/block_allocator.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "base/error.h"

namespace titan::dist {

BlockAllocator::BlockAllocator(std::size_t begin, std::size_t end, int max_blocks)
    : begin_((begin + kPage - 1) / kPage * kPage),
      end_(end),
      end_of_blocks_(begin_),
      max_blocks_(static_cast<std::size_t>(max_blocks)) {}

std::size_t BlockAllocator::rounded(std::size_t bytes) {
  return (std::max(bytes, std::size_t{1}) + kPage - 1) / kPage * kPage;
}

// Finds the smallest free block that is at most twice as large as needed; on a tie, the one freed first.
// `is_rested` skips blocks freed after the last allocate().
const BlockAllocator::Entry* BlockAllocator::best_for(std::size_t bytes, bool is_rested) const {
  const Entry* best = nullptr;
  for (const auto& entry : entries_) {
    if (entry.is_allocated || entry.bytes < bytes || entry.bytes / 2 > bytes) continue;
    if (is_rested && entry.freed_at == allocations_) continue;
    if (!best || std::tie(entry.bytes, entry.freed_at) < std::tie(best->bytes, best->freed_at)) best = &entry;
  }
  return best;
}

bool BlockAllocator::has_room_for(std::size_t bytes) const {
  return bytes <= end_ - end_of_blocks_ && entries_.size() < max_blocks_;
}

bool BlockAllocator::can_allocate(std::size_t bytes) const {
  if (bytes > end_ - begin_) return false;
  bytes = rounded(bytes);
  return has_room_for(bytes) || best_for(bytes, /*is_rested=*/false);
}

std::optional<BlockAllocator::Block> BlockAllocator::allocate(std::size_t bytes) {
  if (!can_allocate(bytes)) return std::nullopt;
  bytes = rounded(bytes);
  const auto* chosen = best_for(bytes, /*is_rested=*/true);
  if (!chosen && has_room_for(bytes)) {
    chosen = &entries_.emplace_back(Entry{end_of_blocks_, bytes, 0, false, 0});
    end_of_blocks_ += bytes;
  }
  if (!chosen) chosen = best_for(bytes, /*is_rested=*/false);
  const auto number = static_cast<int>(chosen - entries_.data());
  auto& entry = entries_[static_cast<std::size_t>(number)];
  ++allocations_;
  entry.is_allocated = true;
  return Block{number, ++entry.generation, entry.offset};
}

void BlockAllocator::free(int number) {
  auto& entry = entries_.at(static_cast<std::size_t>(number));
  TITAN_CHECK(entry.is_allocated, "block " + std::to_string(number) + " is freed twice");
  entry.is_allocated = false;
  entry.freed_at = allocations_;
}

}  // namespace titan::dist
