// Memory of one rank that the other ranks of its host read.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <optional>

namespace titan::dist {

// Blocks of a range of offsets, each with a count of those who need it. A request takes the smallest free part that
// holds it (the lowest of equals), and free neighbours join, so that a steady loop asks for the same offsets again and
// touches no new page. Not safe from several threads.
class BlockPool {
 public:
  struct Stats {
    std::size_t in_use = 0;   // bytes of blocks in use, rounded up as they are kept
    std::size_t touched = 0;  // bytes from the start to the highest end of a block so far: what may be resident
  };

  BlockPool(std::size_t begin, std::size_t end);

  // The offset of a block of at least `bytes` (not 0), 64-byte aligned and needed once; nothing when none is free.
  std::optional<std::size_t> take(std::size_t bytes);
  // `offset` lies anywhere in a block that is in use. The block is free when it was released as often as it was taken
  // and retained.
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

// A file without a name that lives in memory, mapped whole: a large range of addresses, of which only the pages that
// were written take memory. Its creator writes; who opens it by the creator's process id and descriptor reads, and may
// write from an offset on.
class SharedSegment {
 public:
  static constexpr std::size_t kDefaultCapacity = std::size_t{64} << 30;

  // Of `capacity` bytes, or as much less, down to 16 GiB, as the system allows. Throws DistError when it allows less.
  static SharedSegment create(std::size_t capacity);
  // The creator must be alive and keep its object until this returns. `writable_from`: of a page. Throws DistError: no
  // such process or descriptor here (another container), or no right to look into it.
  static SharedSegment open(pid_t creator, int descriptor, std::size_t capacity, std::size_t writable_from);

  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;
  ~SharedSegment();

  std::byte* data() const { return data_; }
  std::size_t capacity() const { return capacity_; }
  int descriptor() const { return descriptor_; }  // -1 in one that was opened

 private:
  SharedSegment(int descriptor, std::byte* data, std::size_t capacity)
      : descriptor_(descriptor), data_(data), capacity_(capacity) {}
  int descriptor_;
  std::byte* data_;
  std::size_t capacity_;
};

}  // namespace titan::dist
