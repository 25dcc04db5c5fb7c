// Predicts the GPU memory that PyTorch's caching allocator takes for a run's allocations. The allocator keeps freed
// blocks in two pools per stream, for small and for large blocks. It therefore holds more than the live tensors:
// blocks that fit no allocation, and blocks freed on one stream and needed on another. The rules are those of
// CUDACachingAllocator.cpp, without limits that the user may set and without the memory it returns when the device is
// full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace titan::train {

class CachingPools {
 public:
  // `expandable_segments`: as in PYTORCH_ALLOC_CONF. If true, a pool is one range of addresses that grows, else a set
  // of segments that never join.
  explicit CachingPools(bool expandable_segments) : expandable_(expandable_segments) {}

  // A block: its pool, and its addresses there, from 0 on.
  struct Block {
    int stream;
    bool is_small;
    std::int64_t begin, bytes;
  };

  // `id` names the block when it is freed.
  Block allocate(std::size_t id, std::int64_t bytes, int stream);
  void free(std::size_t id);

  // Bytes taken from the device. They only grow.
  std::int64_t reserved() const { return reserved_; }

 private:
  using Address = std::int64_t;
  struct Pool {
    bool is_small = false;
    std::map<Address, std::int64_t> sizes;  // sizes of all blocks, free or not
    std::set<std::pair<std::int64_t, Address>> free;
    Address top = 0;  // start of the next segment, or end of the range
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
  std::map<std::pair<int, bool>, Pool> pools_;  // by stream and is_small
  std::map<std::size_t, Place> places_;
};

}  // namespace titan::train
