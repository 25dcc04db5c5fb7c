#include "base/process/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>

#include "base/error.h"

namespace titan {
namespace {

std::filesystem::path owner_path(const std::filesystem::path& path) { return path.string() + ".owner"; }

// Briefly takes a shared lock, which keeps a FileLock out meanwhile.
bool is_flocked(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool locked = ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(fd);
  return locked;
}

bool was_written_lately(const std::filesystem::path& path) {
  std::error_code error;
  const auto written = std::filesystem::last_write_time(path, error);
  return !error && std::filesystem::file_time_type::clock::now() - written < std::chrono::minutes(1);
}

}  // namespace

bool has_no_locks(int error) { return error == ENOSYS || error == EOPNOTSUPP || error == ENOLCK; }

LockedPath::LockedPath(const std::filesystem::path& path, int flags, const std::string& busy) {
  fd_ = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "open " + path.string());
  try {
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && !has_no_locks(errno)) {
      if (errno == EWOULDBLOCK) throw ConfigError(busy);
      throw std::system_error(errno, std::generic_category(), "lock " + path.string());
    }
    watch_ = std::make_unique<PathWatch>(fd_, path);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

LockedPath::~LockedPath() { ::close(fd_); }

FileLock::FileLock(const std::filesystem::path& path, const std::string& busy)
    : locked_(path, O_RDWR | O_CREAT, busy), owner_(owner_path(path), busy) {}

// If only the file was removed, or a copy of the folder is in its place, the owner file still keeps others out.
std::string FileLock::fate() const {
  std::string fate = locked_.fate();
  return fate.empty() || owner_.is_in_place() ? "" : fate;
}

FolderLock::FolderLock(const std::filesystem::path& folder, const std::string& busy)
    : locked_(folder, O_RDONLY | O_DIRECTORY, busy) {}

bool is_locked(const std::filesystem::path& path) {
  if (is_flocked(path)) return true;
  const auto owner = read_owner(owner_path(path));
  if (!owner) return false;
  return is_alive(*owner).value_or(was_written_lately(owner_path(path)));
}

}  // namespace titan
