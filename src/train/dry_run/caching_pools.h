// What PyTorch's caching allocator takes of a GPU for a run's allocations. It keeps what is freed, in a pool per
// stream, one for small blocks and one for large; so it holds more than the tensors that are alive: blocks that no
// allocation fits, and what one stream freed and another needs. The rules are those of its CUDACachingAllocator.cpp,
// without limits that the user may set and without what it gives back when the device is full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace titan::train {

class CachingPools {
 public:
  // `expandable_segments`: as in PYTORCH_ALLOC_CONF. A pool is then one range of addresses that grows; else it is
  // segments, which never join.
  explicit CachingPools(bool expandable_segments) : expandable_(expandable_segments) {}

  // Where a block lies: addresses of one pool, from 0 on.
  struct Block {
    int stream;
    bool is_small;
    std::int64_t begin, bytes;
  };

  // `id` names the block when it is freed.
  Block allocate(std::size_t id, std::int64_t bytes, int stream);
  void free(std::size_t id);

  // Bytes taken of the device, which only grow.
  std::int64_t reserved() const { return reserved_; }

 private:
  using Address = std::int64_t;
  struct Pool {
    bool is_small = false;
    std::map<Address, std::int64_t> sizes;  // of all blocks, free or not
    std::set<std::pair<std::int64_t, Address>> free;
    Address top = 0;  // where the next segment begins, or the range ends
  };
  struct Place {
    Pool* pool;
    Address address;
  };

  Address take(Pool& pool, std::int64_t bytes);
  Address take_from_device(Pool& pool, std::int64_t bytes);
  void split(Pool& pool, Address block, std::int64_t bytes) const;
  static void release(Pool& pool, Address block);

  bool expandable_;
  std::int64_t reserved_ = 0;
  std::map<std::pair<int, bool>, Pool> pools_;  // by stream, and whether they are for small blocks
  std::map<std::size_t, Place> places_;
};

}  // namespace titan::train
