#include "base/files/path_watch.h"

#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace titan {
namespace {

enum class Fate { kSame, kGone, kAnother, kUnknown };

// True if `error`, the errno of a failed look at a file, means that it is not there. A server may know that even of an
// open file (ESTALE).
bool is_absence(int error) { return error == ENOENT || error == ENOTDIR || error == ESTALE; }

Fate look_at(int fd, const std::filesystem::path& path) {
  struct stat opened {};
  struct stat named {};
  if (::fstat(fd, &opened) != 0) return is_absence(errno) ? Fate::kGone : Fate::kUnknown;
  if (::stat(path.c_str(), &named) != 0) return is_absence(errno) ? Fate::kGone : Fate::kUnknown;
  return opened.st_dev == named.st_dev && opened.st_ino == named.st_ino ? Fate::kSame : Fate::kAnother;
}

}  // namespace

PathWatch::PathWatch(int fd, std::filesystem::path path)
    : fd_(fd), path_(std::move(path)), has_number_(look_at(fd_, path_) != Fate::kAnother) {}

std::string PathWatch::fate() const {
  const Fate fate = look_at(fd_, path_);
  if (fate == Fate::kGone) return "is gone";
  return fate == Fate::kAnother && has_number_ ? "is another one now" : "";
}

void PathWatch::check() const {
  if (const std::string fate = this->fate(); !fate.empty())
    throw std::system_error(ESTALE, std::generic_category(),
                            path_.string() + " " + fate + ": it was removed, moved or replaced while it was written");
}

}  // namespace titan
