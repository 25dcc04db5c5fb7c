#include "distributed/shared_memory/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "base/error.h"

namespace titan::dist {
namespace {

constexpr std::size_t kAlignment = 64;
// More than is ever in flight: the smallest size to try when the system refuses a larger segment.
constexpr std::size_t kLeastCapacity = std::size_t{16} << 30;

[[noreturn]] void throw_failed(const std::string& what, int error) {
  throw DistError("cannot " + what + ": " + std::strerror(error));
}

std::byte* map_whole(int descriptor, std::size_t bytes, int protection) {
  void* data = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

// Limits `bytes` to the largest file size: beyond it, the system would end the process instead of refusing.
std::size_t within_file_size_limit(std::size_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return bytes;
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return std::min(bytes, static_cast<std::size_t>(limit.rlim_cur) / page * page);
}

}  // namespace

BlockPool::BlockPool(std::size_t begin, std::size_t end) : begin_(begin) { free_.emplace(begin, end - begin); }

std::optional<std::size_t> BlockPool::take(std::size_t bytes) {
  if (bytes > SIZE_MAX - kAlignment) return std::nullopt;
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second >= bytes && (best == free_.end() || it->second < best->second)) best = it;
  }
  if (best == free_.end()) return std::nullopt;
  const auto [offset, available] = *best;
  free_.erase(best);
  if (available > bytes) free_.emplace(offset + bytes, available - bytes);
  used_.emplace(offset, Block{bytes, 1});
  in_use_ += bytes;
  touched_ = std::max(touched_, offset + bytes - begin_);
  return offset;
}

std::map<std::size_t, BlockPool::Block>::iterator BlockPool::find(std::size_t offset) {
  auto it = used_.upper_bound(offset);
  TITAN_CHECK(it != used_.begin(), "no block at offset " + std::to_string(offset));
  --it;
  TITAN_CHECK(offset < it->first + it->second.bytes, "no block at offset " + std::to_string(offset));
  return it;
}

void BlockPool::retain(std::size_t offset) { ++find(offset)->second.users; }

void BlockPool::release(std::size_t offset) {
  const auto it = find(offset);
  if (--it->second.users > 0) return;
  in_use_ -= it->second.bytes;
  add_free(it->first, it->second.bytes);
  used_.erase(it);
}

void BlockPool::add_free(std::size_t offset, std::size_t bytes) {
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_.emplace(offset, bytes);
}

SharedSegment SharedSegment::create(std::size_t capacity) {
  const int descriptor = memfd_create("titan-collectives", MFD_CLOEXEC);
  if (descriptor < 0) throw_failed("make a file in memory", errno);
  const std::size_t least = std::min(capacity, kLeastCapacity);
  int error = EFBIG;
  for (capacity = within_file_size_limit(capacity); capacity >= least; capacity /= 2) {
    if (ftruncate(descriptor, static_cast<off_t>(capacity)) != 0) {
      error = errno;
      break;
    }
    auto* data = map_whole(descriptor, capacity, PROT_READ | PROT_WRITE);
    if (!data) {
      error = errno;
      continue;
    }
    madvise(data, capacity, MADV_DONTDUMP);
    madvise(data, capacity, MADV_HUGEPAGE);  // best effort: systems without huge pages for shared memory refuse it
    return {descriptor, data, capacity};
  }
  close(descriptor);
  throw_failed("reserve addresses for memory between ranks", error);
}

SharedSegment SharedSegment::open(pid_t creator, int descriptor, std::size_t capacity, std::size_t writable_from) {
  const std::string path = "/proc/" + std::to_string(creator) + "/fd/" + std::to_string(descriptor);
  const int opened = ::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (opened < 0) throw_failed("open " + path, errno);
  // If the process id is another container's, this may be another, shorter file.
  struct stat status {};
  if (fstat(opened, &status) != 0 || status.st_size != static_cast<off_t>(capacity)) {
    close(opened);
    throw DistError(path + " is not what a rank shares (another container?)");
  }
  auto* data = map_whole(opened, capacity, PROT_READ);
  const int error = errno;
  close(opened);
  if (!data) throw_failed("map " + path, error);
  SharedSegment segment(-1, data, capacity);
  if (mprotect(data + writable_from, capacity - writable_from, PROT_READ | PROT_WRITE) != 0)
    throw_failed("make " + path + " writable", errno);
  madvise(data, capacity, MADV_DONTDUMP);
  madvise(data + writable_from, capacity - writable_from, MADV_HUGEPAGE);
  return segment;
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      capacity_(other.capacity_) {}

SharedSegment::~SharedSegment() {
  if (data_) munmap(data_, capacity_);
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace titan::dist
