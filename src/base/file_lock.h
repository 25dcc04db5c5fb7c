// Keeps a second process out of what a file stands for, as long as the first lives, however that one ends.
#pragma once

#include <filesystem>
#include <string>

namespace titan {

class FileLock {
 public:
  // Makes `path` if need be; it stays behind. Throws ConfigError with the text `busy` when another process holds it,
  // and std::system_error when the file cannot be made. A file system without locks keeps nobody out.
  FileLock(const std::filesystem::path& path, const std::string& busy);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_;
};

// Whether a process holds the lock of `path` now. False for a file that is not there, or where locks are not known.
bool is_locked(const std::filesystem::path& path);

}  // namespace titan
