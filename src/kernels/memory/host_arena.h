// Memory for the tensors of a training loop on CPU. Every step requests the same large blocks again; glibc returns
// blocks of that size to the system and gets them back page fault by page fault, which costs a CPU run a third of its
// time. The arena keeps them, so a steady loop requests nothing from the system, and uses huge pages if the system has
// them.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <mutex>
#include <set>
#include <unordered_map>

namespace titan::kernels {

// Best-fit allocator over one range of addresses, reserved at once and touched only as far as needed. A request takes
// the smallest free block that fits (the lowest address of equals); the rest of the block stays free, and adjacent free
// blocks merge. Thread-safe.
class HostArena {
 public:
  struct Stats {
    std::size_t in_use = 0;       // bytes of blocks in use, rounded up to pages
    std::size_t peak_in_use = 0;  // maximum of in_use so far
    std::size_t touched = 0;      // bytes from the start to the highest block end so far: the most that may be resident
  };

  // Reserves `capacity` bytes of addresses, or less if the system does not allow that many; takes no memory yet.
  explicit HostArena(std::size_t capacity);
  ~HostArena();
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  // Returns memory aligned to 64 bytes, or null if no free block is large enough.
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

// Makes CPU tensors of at least 64 KiB come from an arena; smaller ones come from the C library as before. Call once,
// before the first tensor is made. TITAN_HOST_ARENA=0 in the environment leaves everything to the C library, for a
// sanitizer or heap profiler. Returns true if the arena is in use.
bool install_host_arena();

// While one exists, this thread allocates tensors outside the arena: for work that is not part of training, whose
// memory would otherwise count as training's and stay in the arena.
class OutsideHostArena {
 public:
  OutsideHostArena();
  ~OutsideHostArena();
  OutsideHostArena(const OutsideHostArena&) = delete;
  OutsideHostArena& operator=(const OutsideHostArena&) = delete;
};

// Returns the installed arena's statistics, or zeros if there is none.
HostArena::Stats host_arena_stats();

}  // namespace titan::kernels
