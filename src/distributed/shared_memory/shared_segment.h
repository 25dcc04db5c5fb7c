// Memory of one rank that the other ranks of its host read.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <optional>

namespace titan::dist {

// Allocates reference-counted blocks in a range of offsets. A request takes the smallest free part that fits (on a
// tie the lowest), and free neighbors merge, so that a steady loop reuses the same offsets and touches no new page.
// Not thread-safe.
class BlockPool {
 public:
  struct Stats {
    std::size_t in_use = 0;   // bytes of blocks in use, rounded up to the alignment
    std::size_t touched = 0;  // bytes from the start to the highest end of a block so far: may be resident
  };

  BlockPool(std::size_t begin, std::size_t end);

  // Returns the offset of a block of at least `bytes` (not 0), 64-byte aligned and with one user; nullopt if none is
  // free.
  std::optional<std::size_t> take(std::size_t bytes);
  // Adds or removes a user. `offset` may be anywhere in a block in use. The block is free once it was released as
  // often as it was taken and retained.
  void retain(std::size_t offset);
  void release(std::size_t offset);
  Stats stats() const { return {in_use_, touched_}; }

 private:
  struct Block {
    std::size_t bytes;
    int users;
  };
  std::map<std::size_t, Block>::iterator find(std::size_t offset);
  void add_free(std::size_t offset, std::size_t bytes);

  std::map<std::size_t, std::size_t> free_;  // offset -> bytes
  std::map<std::size_t, Block> used_;
  std::size_t begin_;
  std::size_t in_use_ = 0;
  std::size_t touched_ = 0;
};

// An unnamed file in memory, fully mapped: a large range of addresses in which only written pages take memory. Its
// creator writes it. Other processes open it by the creator's process id and descriptor; they may read all of it, and
// write from an offset on.
class SharedSegment {
 public:
  static constexpr std::size_t kDefaultCapacity = std::size_t{64} << 30;

  // Makes a segment of `capacity` bytes, or of fewer, down to 16 GiB, if the system refuses. Throws DistError if it
  // still refuses.
  static SharedSegment create(std::size_t capacity);
  // Maps the creator's segment. The creator must be alive and keep its object until this returns. `writable_from`
  // must be the start of a page. Throws DistError if there is no such process or descriptor here (another container),
  // or no permission.
  static SharedSegment open(pid_t creator, int descriptor, std::size_t capacity, std::size_t writable_from);

  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;
  ~SharedSegment();

  std::byte* data() const { return data_; }
  std::size_t capacity() const { return capacity_; }
  int descriptor() const { return descriptor_; }  // -1 if opened

 private:
  SharedSegment(int descriptor, std::byte* data, std::size_t capacity)
      : descriptor_(descriptor), data_(data), capacity_(capacity) {}
  int descriptor_;
  std::byte* data_;
  std::size_t capacity_;
};

}  // namespace titan::dist
