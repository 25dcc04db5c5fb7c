#include "base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/error.h"

namespace titan {

FileLock::FileLock(const std::filesystem::path& path, const std::string& busy) {
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "open " + path.string());
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  const int reason = errno;
  ::close(fd_);
  fd_ = -1;
  if (reason == ENOSYS || reason == EOPNOTSUPP || reason == ENOLCK) return;
  if (reason != EWOULDBLOCK) throw std::system_error(reason, std::generic_category(), "lock " + path.string());
  throw ConfigError(busy);
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

// For a moment this holds a lock that others may share, and that keeps a FileLock out.
bool is_locked(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool locked = ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(fd);
  return locked;
}

}  // namespace titan
