// Notices that a path does not name an open file any more: somebody removed, moved or replaced it, or a folder above.
// Data written to the open file is lost then, and data written by name goes to another folder.
#pragma once

#include <filesystem>
#include <string>

namespace titan {

class PathWatch {
 public:
  // Watches `path`, a file or a folder, which the caller has just opened as `fd` and keeps open: the number of a closed
  // file may be given to another one.
  PathWatch(int fd, std::filesystem::path path);

  // Returns "" while the path names the open file; otherwise what became of it, to follow its name: "is gone" or "is
  // another one now". Always "" on a file system that gives a file another number each time. Any thread may call this.
  std::string fate() const;
  // Throws std::system_error with the path and its fate() unless that is "".
  void check() const;

 private:
  int fd_;
  std::filesystem::path path_;
  bool has_number_;  // the file system gives the file the same number by name and by descriptor
};

}  // namespace titan
