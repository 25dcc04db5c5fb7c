#include "config/toml/piped_text.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "base/env.h"
#include "base/error.h"

namespace titan::config {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMemoryName = "titan-train configuration";

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
  throw ConfigError("error: --config " + path + ": " + reason);
}

// True if this program's launcher has already read the descriptor and put its text into memory.
bool is_in_memory(int fd) {
  std::error_code error;
  const auto target = fs::read_symlink("/proc/self/fd/" + std::to_string(fd), error).string();
  return target.starts_with(std::string("/memfd:") + kMemoryName);
}

bool is_file(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

// Collects the results of `read_at` until it returns 0. read_at(buffer, its size, bytes read
// before) -> bytes, like read(2).
template <class ReadAt>
std::string read_to_the_end(const std::string& path, ReadAt read_at) {
  std::string text;
  std::array<char, 1 << 16> buffer;
  ssize_t count = 0;
  while ((count = read_at(buffer.data(), buffer.size(), text.size())) != 0) {
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path, std::string("it cannot be read: ") + std::strerror(errno));
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return text;
}

// Reads from the start, regardless of how far another process that shares the file has read.
std::string read_file_from_start(int fd, const std::string& path) {
  return read_to_the_end(path, [fd](char* buffer, std::size_t size, std::size_t at) {
    return ::pread(fd, buffer, size, static_cast<off_t>(at));
  });
}

std::string read_pipe(int fd, const std::string& path) {
  return read_to_the_end(path, [fd](char* buffer, std::size_t size, std::size_t) { return ::read(fd, buffer, size); });
}

// Makes `target` a file in memory that has `text`.
void put_into_memory(const std::string& text, int target, const std::string& path) {
  const int fd = memfd_create(kMemoryName, MFD_CLOEXEC);
  std::size_t written = 0;
  while (fd >= 0 && written < text.size()) {
    const ssize_t count = ::write(fd, text.data() + written, text.size() - written);
    if (count < 0) break;
    written += static_cast<std::size_t>(count);
  }
  const bool is_put = fd >= 0 && written == text.size() && dup2(fd, target) == target;
  if (fd >= 0) ::close(fd);
  if (!is_put) fail(path, std::string("the text cannot be kept in memory: ") + std::strerror(errno));
}

// Returns the number of an entry of /proc/self/fd, under any of its names.
std::optional<int> number_of_descriptor(const fs::path& path) {
  std::error_code error;
  // /dev/stdin is a link to such an entry, which is a link too, to what it has open.
  const auto target = fs::read_symlink(path, error);
  const bool is_link_to_entry = !error && target.parent_path() == "/proc/self/fd";
  const fs::path entry = is_link_to_entry ? target : path;
  if (fs::canonical(entry.parent_path(), error) != fs::canonical("/proc/self/fd", error) || error) return std::nullopt;
  const std::string name = entry.filename();
  int fd = 0;
  const auto [end, wrong] = std::from_chars(name.data(), name.data() + name.size(), fd);
  return wrong == std::errc() && end == name.data() + name.size() ? std::optional(fd) : std::nullopt;
}

}  // namespace

std::optional<int> descriptor_of(const std::string& path) {
  if (path == kStandardInput) return STDIN_FILENO;
  std::error_code error;
  const auto type = fs::status(path, error).type();
  const bool is_read_once =
      type == fs::file_type::fifo || type == fs::file_type::character || type == fs::file_type::socket;
  if (error || !is_read_once || path == "/dev/null") return std::nullopt;
  if (const auto fd = number_of_descriptor(path)) return fd;
  fail(path, "it is not a file, and a configuration is read more than once; use --config - < " + path);
}

std::string read_descriptor(int fd, const std::string& path) {
  if (is_in_memory(fd)) return read_file_from_start(fd, path);
  if (const auto launch = detect_launch(); launch.launcher != Launcher::kAlone)
    fail(path, std::string("standard input reaches one rank at most of those that ") + to_string(launch.launcher) +
                   " starts; write the configuration to a file, or start the ranks with --nproc");
  if (is_file(fd)) return read_file_from_start(fd, path);
  const std::string text = read_pipe(fd, path);
  put_into_memory(text, fd, path);
  return text;
}

}  // namespace titan::config
