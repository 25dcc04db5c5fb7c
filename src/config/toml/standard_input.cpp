#include "config/toml/standard_input.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/env.h"
#include "base/error.h"

namespace titan::config {
namespace {

constexpr const char* kMemoryName = "titan-train configuration";

[[noreturn]] void fail(const std::string& reason) { throw ConfigError("error: --config -: " + reason); }

// True if this program's launcher has already read standard input and put it into memory.
bool is_in_memory() {
  std::error_code error;
  const auto target = std::filesystem::read_symlink("/proc/self/fd/0", error).string();
  return target.starts_with(std::string("/memfd:") + kMemoryName);
}

bool is_file() {
  struct stat info {};
  return fstat(STDIN_FILENO, &info) == 0 && S_ISREG(info.st_mode);
}

// Collects the results of `read_at` until it returns 0. read_at(buffer, its size, bytes read
// before) -> bytes, like read(2).
template <class ReadAt>
std::string read_to_the_end(ReadAt read_at) {
  std::string text;
  std::array<char, 1 << 16> buffer;
  ssize_t count = 0;
  while ((count = read_at(buffer.data(), buffer.size(), text.size())) != 0) {
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(std::string("standard input cannot be read: ") + std::strerror(errno));
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return text;
}

// Reads from the start, regardless of how far another process that shares the file has read.
std::string read_file_from_start() {
  return read_to_the_end([](char* buffer, std::size_t size, std::size_t at) {
    return ::pread(STDIN_FILENO, buffer, size, static_cast<off_t>(at));
  });
}

std::string read_pipe() {
  return read_to_the_end(
      [](char* buffer, std::size_t size, std::size_t) { return ::read(STDIN_FILENO, buffer, size); });
}

void put_into_memory(const std::string& text) {
  const int fd = memfd_create(kMemoryName, MFD_CLOEXEC);
  std::size_t written = 0;
  while (fd >= 0 && written < text.size()) {
    const ssize_t count = ::write(fd, text.data() + written, text.size() - written);
    if (count < 0) break;
    written += static_cast<std::size_t>(count);
  }
  const bool is_put = fd >= 0 && written == text.size() && dup2(fd, STDIN_FILENO) == STDIN_FILENO;
  if (fd >= 0) ::close(fd);
  if (!is_put) fail(std::string("the text cannot be kept in memory: ") + std::strerror(errno));
}

}  // namespace

std::string read_standard_input() {
  if (is_in_memory()) return read_file_from_start();
  if (const auto launch = detect_launch(); launch.launcher != Launcher::kAlone)
    fail(std::string("standard input reaches one rank at most of those that ") + to_string(launch.launcher) +
         " starts; write the configuration to a file, or start the ranks with --nproc");
  if (is_file()) return read_file_from_start();
  const std::string text = read_pipe();
  put_into_memory(text);
  return text;
}

}  // namespace titan::config
