#include "train/dry_run/caching_pools.h"

#include <algorithm>
#include <iterator>

namespace titan::train {
namespace {

constexpr std::int64_t kBlock = 512;                   // all sizes are multiples of it
constexpr std::int64_t kMost = std::int64_t{1} << 20;  // largest small block; a large one is split if more remains
constexpr std::int64_t kSmallSegment = std::int64_t{2} << 20;
constexpr std::int64_t kLargeSegment = std::int64_t{20} << 20;  // for blocks below kLargeAlone
constexpr std::int64_t kLargeAlone = std::int64_t{10} << 20;    // a block of at least this size has its own segment
constexpr std::int64_t kLargeRound = std::int64_t{2} << 20;

std::int64_t round_up(std::int64_t bytes, std::int64_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

std::int64_t segment_size(std::int64_t bytes, bool is_small) {
  if (is_small) return kSmallSegment;
  return bytes < kLargeAlone ? kLargeSegment : round_up(bytes, kLargeRound);
}

}  // namespace

CachingPools::Block CachingPools::allocate(std::size_t id, std::int64_t bytes, int stream) {
  bytes = round_up(std::max<std::int64_t>(bytes, 1), kBlock);
  const bool is_small = bytes <= kMost;
  Pool& pool = pools_[{stream, is_small}];
  pool.is_small = is_small;
  const Address begin = take(pool, bytes);
  places_[id] = {&pool, begin};
  return {stream, is_small, begin, bytes};
}

void CachingPools::free(std::size_t id) {
  const auto place = places_.find(id);
  if (place == places_.end()) return;
  release(*place->second.pool, place->second.address);
  places_.erase(place);
}

// Takes the smallest free block that is large enough, the first of equal ones; else memory from the device.
CachingPools::Address CachingPools::take(Pool& pool, std::int64_t bytes) {
  const auto fit = pool.free.lower_bound({bytes, 0});
  Address block = 0;
  if (fit != pool.free.end()) {
    block = fit->second;
    pool.free.erase(fit);
  } else {
    block = take_from_device(pool, bytes);
  }
  split(pool, block, bytes);
  return block;
}

CachingPools::Address CachingPools::take_from_device(Pool& pool, std::int64_t bytes) {
  if (!expandable_) {
    const auto size = segment_size(bytes, pool.is_small);
    const Address begin = pool.top;
    pool.top += size + kBlock;  // a gap, so that segments do not join
    pool.sizes[begin] = size;
    reserved_ += size;
    return begin;
  }
  // A free block at the end of the range grows by what is missing.
  Address begin = pool.top;
  if (!pool.sizes.empty()) {
    const auto last = std::prev(pool.sizes.end());
    if (pool.free.erase({last->second, last->first}) > 0) begin = last->first;
  }
  const auto grown = round_up(begin + bytes - pool.top, pool.is_small ? kSmallSegment : kLargeSegment);
  pool.top += grown;
  reserved_ += grown;
  pool.sizes[begin] = pool.top - begin;
  return begin;
}

// Makes the rest of the block a free block, if it is large enough.
void CachingPools::split(Pool& pool, Address block, std::int64_t bytes) const {
  const auto rest = pool.sizes.at(block) - bytes;
  const bool is_worth_it = pool.is_small || expandable_ ? rest >= kBlock : rest > kMost;
  if (!is_worth_it) return;
  pool.sizes[block] = bytes;
  pool.sizes[block + bytes] = rest;
  pool.free.emplace(rest, block + bytes);
}

// Frees the block and joins it with free neighbors.
void CachingPools::release(Pool& pool, Address block) {
  auto at = pool.sizes.find(block);
  const auto next = std::next(at);
  if (next != pool.sizes.end() && next->first == at->first + at->second &&
      pool.free.erase({next->second, next->first}) > 0) {
    at->second += next->second;
    pool.sizes.erase(next);
  }
  if (at != pool.sizes.begin()) {
    const auto before = std::prev(at);
    if (before->first + before->second == at->first && pool.free.erase({before->second, before->first}) > 0) {
      before->second += at->second;
      pool.sizes.erase(at);
      at = before;
    }
  }
  pool.free.emplace(at->second, at->first);
}

}  // namespace titan::train
