#include "checkpoint/io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/error.h"
#include "checkpoint/io/crc32.h"
#include "checkpoint/io/on_threads.h"

namespace titan::checkpoint {
namespace {

constexpr std::size_t kBlockSize = 4 << 20;  // full pages: O_DIRECT requires aligned addresses, offsets and sizes

[[noreturn]] void fail(const char* action, const std::filesystem::path& path, int error) {
  throw CheckpointError(std::string("cannot ") + action + " " + path.string() + ": " + std::strerror(error));
}

}  // namespace

OutputFile::OutputFile(std::filesystem::path path)
    : path_(std::move(path)),
      filling_(make_block()),
      writing_(make_block()),
      fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (fd_ < 0) fail("create", path_, errno);
  direct_ = ::fcntl(fd_, F_SETFL, O_DIRECT) == 0;
}

OutputFile::~OutputFile() {
  if (written_.valid()) written_.wait();
  if (fd_ >= 0) ::close(fd_);
}

void OutputFile::Unmap::operator()(char* block) const { ::munmap(block, kBlockSize); }

OutputFile::Block OutputFile::make_block() {
  void* const block = ::mmap(nullptr, kBlockSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) throw std::bad_alloc();
  return Block(static_cast<char*>(block));
}

void OutputFile::stop_direct() {
  ::fcntl(fd_, F_SETFL, 0);
  direct_ = false;
}

void OutputFile::write_out(const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t written = ::write(fd_, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EINVAL && direct_) {  // the file system accepts the flag but not the write
      stop_direct();
      continue;
    }
    if (written < 0) fail("write", path_, errno);
    // The rest of a block after a short write is not aligned.
    if (direct_ && static_cast<std::size_t>(written) < size) stop_direct();
    data += written;
    size -= static_cast<std::size_t>(written);
  }
}

void OutputFile::write_full_block() {
  if (written_.valid()) written_.get();
  std::swap(filling_, writing_);
  filled_ = 0;
  // On a thread if the system gives one. Otherwise the next wait writes.
  written_ = std::async(kBesideOrLater, [this] { write_out(writing_.get(), kBlockSize); });
}

void OutputFile::append(const void* data, std::size_t size) {
  crc_ = crc32(crc_, data, size);
  put(static_cast<const char*>(data), size);
}

void OutputFile::append(const void* data, std::size_t size, std::uint32_t crc) {
  crc_ = crc32_combine(crc_, crc, size);
  put(static_cast<const char*>(data), size);
}

void OutputFile::put(const char* bytes, std::size_t size) {
  position_ += size;
  while (size > 0) {
    const std::size_t count = std::min(size, kBlockSize - filled_);
    std::memcpy(filling_.get() + filled_, bytes, count);
    filled_ += count;
    bytes += count;
    size -= count;
    if (filled_ == kBlockSize) write_full_block();
  }
}

void OutputFile::finish() {
  if (written_.valid()) written_.get();
  stop_direct();  // the end of the file is not a full block
  write_out(filling_.get(), filled_);
  if (::fsync(fd_) != 0) fail("flush to disk", path_, errno);
  const int fd = fd_;
  fd_ = -1;
  // Network file systems may report a failed write only here.
  if (::close(fd) != 0) fail("close", path_, errno);
}

PlacedFile::PlacedFile(std::filesystem::path path)
    : path_(std::move(path)), fd_(::open(path_.c_str(), O_WRONLY | O_CLOEXEC)) {
  if (fd_ < 0) fail("open", path_, errno);
}

PlacedFile::~PlacedFile() {
  if (fd_ >= 0) ::close(fd_);
}

void PlacedFile::write(std::uint64_t offset, const void* data, std::size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  const std::uint32_t crc = crc32(0, data, size);
  if (!pieces_.empty() && pieces_.back().begin + pieces_.back().size == offset) {
    pieces_.back().crc = crc32_combine(pieces_.back().crc, crc, size);
    pieces_.back().size += size;
  } else {
    pieces_.push_back({offset, size, crc});
  }
  while (size > 0) {
    const ssize_t written = ::pwrite(fd_, bytes, size, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", path_, errno);
    bytes += written;
    offset += static_cast<std::uint64_t>(written);
    size -= static_cast<std::size_t>(written);
  }
}

void PlacedFile::finish() {
  if (::fsync(fd_) != 0) fail("flush", path_, errno);
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) fail("close", path_, errno);
}

InputFile::InputFile(std::filesystem::path path)
    : path_(std::move(path)), fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_ < 0) fail("open", path_, errno);
  struct stat status {};
  if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
    const int error = S_ISREG(status.st_mode) ? errno : EISDIR;
    ::close(fd_);
    fail("read", path_, error);
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
  // Tensors are read from front to back; with this advice Linux reads twice as far ahead. Failure does not matter.
  ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
}

InputFile::~InputFile() { ::close(fd_); }

void InputFile::read(std::uint64_t offset, void* data, std::size_t size) const {
  auto* bytes = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = ::pread(fd_, bytes, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path_, errno);
    if (got == 0)
      throw CheckpointError(path_.string() + " ends at byte " + std::to_string(offset) + ", but " +
                            std::to_string(size) + " more bytes are expected there: the file is truncated");
    bytes += got;
    offset += static_cast<std::uint64_t>(got);
    size -= static_cast<std::size_t>(got);
  }
}

}  // namespace titan::checkpoint
