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
#include "checkpoint/io/interruptions.h"
#include "checkpoint/io/on_threads.h"
#include "checkpoint/io/read_error.h"

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
  Interruptions interruptions;
  while (size > 0) {
    const ssize_t written = ::write(fd_, data, size);
    if (written < 0 && interruptions.may_repeat()) continue;
    if (written < 0 && errno == EINVAL && direct_) {  // the file system accepts the flag but not the write
      stop_direct();
      continue;
    }
    if (written < 0) fail("write", path_, errno);
    interruptions.reset();
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
  Interruptions interruptions;
  while (size > 0) {
    const ssize_t written = ::pwrite(fd_, bytes, size, static_cast<off_t>(offset));
    if (written < 0 && interruptions.may_repeat()) continue;
    if (written < 0) fail("write", path_, errno);
    interruptions.reset();
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

namespace {

// Opens a regular file to read. Returns an errno, or 0 with the descriptor and the size.
int open_to_read(const std::filesystem::path& path, int& fd, std::uint64_t& size) {
  const int opened = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (opened < 0) return errno;
  struct stat status {};
  const int error = ::fstat(opened, &status) != 0 ? errno : S_ISREG(status.st_mode) ? 0 : EISDIR;
  if (error != 0) {
    ::close(opened);
    return error;
  }
  fd = opened;
  size = static_cast<std::uint64_t>(status.st_size);
  return 0;
}

// Holds what is still to be read of a range.
struct Rest {
  std::uint64_t offset;
  char* bytes;
  std::size_t size;
};

// Reads until nothing is left. Returns an errno, or 0; with a rest if the file ends.
int read_from(int fd, Rest& rest) {
  Interruptions interruptions;
  while (rest.size > 0) {
    const ssize_t got = ::pread(fd, rest.bytes, rest.size, static_cast<off_t>(rest.offset));
    if (got < 0 && interruptions.may_repeat()) continue;
    if (got < 0) return errno;
    if (got == 0) return 0;
    interruptions.reset();
    rest.bytes += got;
    rest.offset += static_cast<std::uint64_t>(got);
    rest.size -= static_cast<std::size_t>(got);
  }
  return 0;
}

// Does the same through a new descriptor: one that has become stale stays so.
int read_anew(const std::filesystem::path& path, Rest& rest) {
  int fd = -1;
  std::uint64_t size = 0;
  if (const int error = open_to_read(path, fd, size)) return error;
  const int error = read_from(fd, rest);
  ::close(fd);
  return error;
}

}  // namespace

InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
  const auto attempt = [this] { return open_to_read(path_, fd_, size_); };
  if (const int error = retry_after(attempt(), "open", path_, attempt)) fail_to_read("open", path_, error);
  // Tensors are read from front to back; with this advice Linux reads twice as far ahead. Failure does not matter.
  ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
}

InputFile::~InputFile() { ::close(fd_); }

void InputFile::read(std::uint64_t offset, void* data, std::size_t size) const {
  Rest rest{offset, static_cast<char*>(data), size};
  if (int error = read_from(fd_, rest)) {
    error = retry_after(error, "read", path_, [&] { return read_anew(path_, rest); });
    if (error != 0) fail_to_read("read", path_, error);
  }
  if (rest.size > 0)
    throw CheckpointError(path_.string() + " ends at byte " + std::to_string(rest.offset) + ", but " +
                          std::to_string(rest.size) + " more bytes are expected there: the file is truncated");
}

std::string read_whole(const std::filesystem::path& path) {
  const InputFile file(path);
  std::string bytes(file.size(), '\0');
  file.read(0, bytes.data(), bytes.size());
  return bytes;
}

}  // namespace titan::checkpoint
