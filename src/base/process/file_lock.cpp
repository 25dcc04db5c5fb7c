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

// Locks what `fd` has open. Throws ConfigError with the text `busy` if it is locked. Does nothing on a file system
// without locks.
void lock_or_refuse(int fd, const std::filesystem::path& path, const std::string& busy) {
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0 || has_no_locks(errno)) return;
  if (errno == EWOULDBLOCK) throw ConfigError(busy);
  throw std::system_error(errno, std::generic_category(), "lock " + path.string());
}

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

FileLock::FileLock(const std::filesystem::path& path, const std::string& busy) {
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "open " + path.string());
  try {
    lock_or_refuse(fd_, path, busy);
    watch_ = std::make_unique<PathWatch>(fd_, path);
    owner_ = std::make_unique<OwnerFile>(owner_path(path), busy);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

FileLock::~FileLock() {
  owner_.reset();
  ::close(fd_);
}

// If only the file was removed, or a copy of the folder is in its place, the owner file still keeps others out.
std::string FileLock::fate() const {
  std::string fate = watch_->fate();
  return fate.empty() || owner_->is_in_place() ? "" : fate;
}

FolderLock::FolderLock(const std::filesystem::path& folder, const std::string& busy) {
  fd_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "open " + folder.string());
  try {
    lock_or_refuse(fd_, folder, busy);
    watch_ = std::make_unique<PathWatch>(fd_, folder);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

FolderLock::~FolderLock() { ::close(fd_); }

bool is_locked(const std::filesystem::path& path) {
  if (is_flocked(path)) return true;
  const auto owner = read_owner(owner_path(path));
  if (!owner) return false;
  return is_alive(*owner).value_or(was_written_lately(owner_path(path)));
}

}  // namespace titan
