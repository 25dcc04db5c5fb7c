#include "base/fs.h"

#include <fcntl.h>
#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "base/error.h"

namespace titan {
namespace {

class FileDescriptor {
 public:
  FileDescriptor(const std::filesystem::path& path, int flags, mode_t mode = 0666)
      : path_(path), fd_(::open(path.c_str(), flags, mode)) {
    if (fd_ < 0) fail("open");
  }
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  void write(std::string_view content) const {
    if (!write_all(fd_, content)) fail("write");
  }
  void sync() const {
    // Some file systems have no fsync, at least for folders; that is not an error.
    if (::fsync(fd_) != 0 && errno != EINVAL) fail("fsync");
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw std::system_error(errno, std::generic_category(), std::string(what) + " " + path_.string());
  }
  std::filesystem::path path_;
  int fd_;
};

}  // namespace

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

std::string read_file(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) throw DataError(path.string() + " is a directory; expected a file");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw DataError("cannot read " + path.string() + ": " + std::strerror(errno));
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  const std::filesystem::path temporary = path.string() + ".tmp";
  {
    const FileDescriptor file(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
    file.write(content);
    file.sync();
  }
  std::filesystem::rename(temporary, path);
  fsync_folder(path.parent_path().empty() ? "." : path.parent_path());
}

void fsync_folder(const std::filesystem::path& folder) {
  FileDescriptor(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC).sync();
}

void fsync_file(const std::filesystem::path& path) { FileDescriptor(path, O_RDONLY | O_CLOEXEC).sync(); }

std::filesystem::path existing_part(const std::filesystem::path& path) {
  std::error_code error;
  auto at = std::filesystem::absolute(path, error);
  while (!std::filesystem::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  return at;
}

std::vector<std::filesystem::path> matches_of(const std::filesystem::path& pattern) {
  std::error_code error;
  if (pattern.native().find_first_of("*?[") == std::string::npos || std::filesystem::exists(pattern, error)) return {};
  glob_t found{};
  std::vector<std::filesystem::path> out;
  const int status = ::glob(pattern.c_str(), GLOB_NOSORT | GLOB_ERR, nullptr, &found);
  const int reason = errno;
  if (status == 0) out.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (status != 0 && status != GLOB_NOMATCH)  // an unreadable folder would silently drop part of the data
    throw DataError("cannot list " + pattern.string() + ": " + std::strerror(reason));
  std::ranges::sort(out, {}, [](const auto& path) { return path.native(); });
  return out;
}

}  // namespace titan
