// Memory for the tensors of a training loop on CPU. Every step asks for the same large blocks again; glibc gives blocks
// of that size back to the system and gets them again, page fault by page fault, which costs a CPU run a third of its
// time. An arena keeps them: a steady loop asks the system for nothing, and its pages are huge ones where the system
// has them.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <mutex>
#include <set>
#include <unordered_map>

namespace titan::kernels {

// One range of addresses, reserved at once and touched as far as it was ever needed. A request takes the smallest free
// block that holds it (the lowest of equals), the rest of the block stays free, and neighbours that are free join.
// Safe from several threads.
class HostArena {
 public:
  struct Stats {
    std::size_t in_use = 0;       // bytes of blocks in use, rounded up as they are kept
    std::size_t peak_in_use = 0;  // the most at any time
    std::size_t touched = 0;      // bytes from the start to the highest end of a block so far: what may be resident
  };

  // Reserves `capacity` bytes of addresses, or as much less as the system allows; no memory yet.
  explicit HostArena(std::size_t capacity);
  ~HostArena();
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  // 64-byte aligned; null when no free block is large enough.
  void* allocate(std::size_t bytes);
  // `block` must come from allocate().
  void release(void* block);
  bool owns(const void* block) const { return block >= begin_ && block < begin_ + capacity_; }
  Stats stats() const;

 private:
  struct Block {
    char* begin;
    std::size_t size;
    bool free;
    Block* previous;
    Block* next;
  };
  struct BySizeThenPlace {
    bool operator()(const Block* a, const Block* b) const {
      return a->size != b->size ? a->size < b->size : a->begin < b->begin;
    }
  };

  void give_rest_back(Block* block, std::size_t used);
  Block* join(Block* first, Block* second);

  mutable std::mutex mutex_;
  char* begin_ = nullptr;
  std::size_t capacity_ = 0;
  std::set<Block*, BySizeThenPlace> free_;
  std::unordered_map<const void*, Block*> in_use_;
  Stats stats_;
};

// From now on tensors on CPU of at least 64 KiB come from an arena, smaller ones from the C library as before. Call
// once, before the first tensor is made. TITAN_HOST_ARENA=0 in the environment leaves everything to the C library, as a
// sanitizer or heap profiler wants it. Returns whether it is in use.
bool install_host_arena();

// While one exists, this thread's tensors come from the C library all the same: for what is not a part of training,
// whose memory would count as what training needs and stay with the arena afterwards.
class OutsideHostArena {
 public:
  OutsideHostArena();
  ~OutsideHostArena();
  OutsideHostArena(const OutsideHostArena&) = delete;
  OutsideHostArena& operator=(const OutsideHostArena&) = delete;
};

// Of the installed arena; zeros without one.
HostArena::Stats host_arena_stats();

}  // namespace titan::kernels
