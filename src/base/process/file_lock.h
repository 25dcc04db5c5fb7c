// Exclusive locks on files and folders; released when the process exits for any reason.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/files/path_watch.h"
#include "base/process/owner_file.h"

namespace titan {

// An open file or folder with an exclusive lock.
class LockedPath {
 public:
  // Opens `path` with `flags` of open(2). Throws ConfigError with the text `busy` if it is locked, and
  // std::system_error if it cannot be opened. On a file system without locks it keeps nobody out.
  LockedPath(const std::filesystem::path& path, int flags, const std::string& busy);
  ~LockedPath();
  LockedPath(const LockedPath&) = delete;
  LockedPath& operator=(const LockedPath&) = delete;

  // Returns PathWatch::fate(). Any thread may call this.
  std::string fate() const { return watch_->fate(); }

 private:
  int fd_;
  std::unique_ptr<PathWatch> watch_;
};

class FileLock {
 public:
  // Creates `path` if needed; the file is not removed. While this lives, `path`.owner (owner_file.h) exists beside
  // it, because some file systems have no locks, and on some a lock holds on one node only. Throws ConfigError
  // with the text `busy` if another process holds the lock, and std::system_error if a file cannot be created.
  FileLock(const std::filesystem::path& path, const std::string& busy);

  // Returns "" while other processes are kept out; otherwise what became of the file, to follow its name: "is gone" or
  // "is another one now". Another process may hold a lock of the same name then. Any thread may call this.
  std::string fate() const;

 private:
  LockedPath locked_;
  OwnerFile owner_;  // goes first
};

// Puts no file into the folder. Keeps out processes of this machine, by whatever path they name the folder; others need
// an OwnerFile.
class FolderLock {
 public:
  // Throws ConfigError with the text `busy` if another process or another FolderLock holds the lock, and
  // std::system_error if the folder cannot be opened. On a file system without locks it keeps nobody out.
  FolderLock(const std::filesystem::path& folder, const std::string& busy);

  // True while the path names the locked folder: nobody has removed, moved or replaced it. Any thread may call this.
  bool is_in_place() const { return locked_.fate().empty(); }

 private:
  LockedPath locked_;
};

// True if `error`, the errno of a failed flock(2), means that the file system has no locks, and not
// that another process holds the lock.
bool has_no_locks(int error);

// True if a process holds the lock of `path` now; false if the file does not exist. An owner on
// another node holds it if its file was modified within the last minute.
bool is_locked(const std::filesystem::path& path);

}  // namespace titan
