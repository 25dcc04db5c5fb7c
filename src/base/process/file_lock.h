// Keeps a second process out of what a file stands for, as long as the first lives, however that one ends.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/process/owner_file.h"

namespace titan {

class FileLock {
 public:
  // Makes `path` if need be; it stays behind. Beside it lies `path`.owner (owner_file.h) as long as this lives: there
  // are file systems without locks, and some whose locks hold on one node only. Throws ConfigError with the text `busy`
  // when another process holds it, and std::system_error when a file cannot be made.
  FileLock(const std::filesystem::path& path, const std::string& busy);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_;
  std::unique_ptr<OwnerFile> owner_;
};

// True where a lock that could not be had (flock(2) and its errno) does not say that another process holds it: the file
// system has no locks.
bool has_no_locks(int error);

// Returns whether a process holds the lock of `path` now. False for a file that is not there. An owner on another node
// holds it if it has shown a sign of life within the last minute by the file's time of change.
bool is_locked(const std::filesystem::path& path);

}  // namespace titan
