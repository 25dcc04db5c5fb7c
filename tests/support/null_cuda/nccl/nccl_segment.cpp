#include "tests/support/null_cuda/nccl/nccl_segment.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace titan_null {

void pause_a_little(int turn) {
  if (turn < 20) {
    ::sched_yield();
    return;
  }
  const timespec pause{0, turn < 200 ? 50'000 : 1'000'000};
  ::nanosleep(&pause, nullptr);
}

Segment::Segment(const std::string& name, int rank, int size, int device) : rank_(rank), size_(size) {
  const auto ranks = static_cast<std::size_t>(size);
  bytes_ = sizeof(Head) + ranks * 2 * kBlock + ranks * ranks * sizeof(Channel);
  const int file = ::shm_open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes_)) != 0) throw std::runtime_error("no shared memory");
  void* const found = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (found == MAP_FAILED) throw std::runtime_error("no shared memory");
  head_ = static_cast<Head*>(found);
  head_->slots[rank].device = device;
  // The last rank removes the name, so that nothing stays behind whoever is killed later.
  if (++head_->attached == size) ::shm_unlink(name.c_str());
  for (int turn = 0; head_->attached < size; ++turn) pause_a_little(turn);
}

Segment::~Segment() { ::munmap(head_, bytes_); }

int Segment::duplicate() const {
  for (int rank = 0; rank < rank_; ++rank)
    if (head_->slots[rank].device == head_->slots[rank_].device) return rank;
  return -1;
}

char* Segment::block(int rank, std::uint64_t number) const {
  return reinterpret_cast<char*>(head_ + 1) + (static_cast<std::size_t>(rank) * 2 + number % 2) * kBlock;
}

Segment::Channel& Segment::channel(int from, int to) const {
  auto* const first = reinterpret_cast<Channel*>(block(size_, 0));
  return first[from * size_ + to];
}

int Segment::exchange(const char* bytes, std::size_t size, std::uint64_t tag, const std::function<bool()>& goes_on,
                      const Read& read) {
  std::size_t offset = 0;
  do {
    const std::size_t length = std::min(kBlock, size - offset);
    const std::uint64_t number = num_blocks_++;
    Slot& own = head_->slots[rank_];
    if (bytes) std::memcpy(block(rank_, number), bytes + offset, length);
    own.tags[number % 2] = tag;
    own.published = number + 1;
    for (int rank = 0; rank < size_; ++rank) {
      for (int turn = 0; head_->slots[rank].published <= number; ++turn) {
        if (!goes_on()) return -2;
        pause_a_little(turn);
      }
      if (head_->slots[rank].tags[number % 2] != tag) return rank;
    }
    read(offset, length, [&](int rank) { return block(rank, number); });
    offset += length;
  } while (offset < size);
  return -1;
}

std::size_t Segment::put(int peer, const char* bytes, std::size_t size) {
  Channel& to = channel(rank_, peer);
  const std::uint64_t written = to.written, used = written - to.read;
  const std::size_t at = written % kChannel;
  const std::size_t length = std::min({size, kChannel - static_cast<std::size_t>(used), kChannel - at});
  std::memcpy(to.bytes + at, bytes, length);
  to.written = written + length;
  return length;
}

std::size_t Segment::get(int peer, char* bytes, std::size_t size) {
  Channel& from = channel(peer, rank_);
  const std::uint64_t read = from.read;
  const std::size_t at = read % kChannel;
  const std::size_t length = std::min({size, static_cast<std::size_t>(from.written - read), kChannel - at});
  std::memcpy(bytes, from.bytes + at, length);
  from.read = read + length;
  return length;
}

}  // namespace titan_null
