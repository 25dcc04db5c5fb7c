#pragma once

// Shared memory of the ranks of one communicator. Each rank publishes the bytes that it sends, block by block, and
// reads the blocks of the others. Two blocks per rank suffice: who publishes block k + 1 has read block k of everyone.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace titan_null {

constexpr std::size_t kBlock = std::size_t{256} << 10;
constexpr std::size_t kChannel = std::size_t{64} << 10;
constexpr int kMostRanks = 64;

class Segment {
 public:
  // Attaches to the segment of this name and waits until all ranks have. False from `goes_on` ends any wait early.
  Segment(const std::string& name, int rank, int size, int device);
  ~Segment();

  // Returns a rank that is on the same device as an earlier one; -1 if none is.
  int duplicate() const;

  // Exchanges `size` bytes per rank: calls read(rank, offset, block, length) for each rank and each block in turn. A
  // null `bytes` publishes nothing, but counts. `tag` has to be the same on all ranks; the rank whose tag differs is
  // returned, or -1. Returns -2 if `goes_on` ended it.
  using Read =
      std::function<void(std::size_t offset, std::size_t length, const std::function<const char*(int)>& block)>;
  int exchange(const char* bytes, std::size_t size, std::uint64_t tag, const std::function<bool()>& goes_on,
               const Read& read);

  // Moves as much as fits to, or from, the channel between this rank and a peer. Returns the number of bytes.
  std::size_t put(int peer, const char* bytes, std::size_t size);
  std::size_t get(int peer, char* bytes, std::size_t size);

 private:
  struct Slot {
    alignas(64) std::atomic<std::uint64_t> published;
    std::atomic<std::uint64_t> tags[2];
    std::atomic<int> device;
  };
  struct Head {
    std::atomic<int> attached;
    Slot slots[kMostRanks];
  };
  struct Channel {
    alignas(64) std::atomic<std::uint64_t> written;
    alignas(64) std::atomic<std::uint64_t> read;
    char bytes[kChannel];
  };

  char* block(int rank, std::uint64_t number) const;
  Channel& channel(int from, int to) const;

  int rank_, size_;
  std::size_t bytes_;
  Head* head_;
  std::uint64_t num_blocks_ = 0;
};

// Lets other threads run; waits longer the higher `turn` is.
void pause_a_little(int turn);

}  // namespace titan_null
