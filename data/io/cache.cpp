#include "data/io/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/env.h"
#include "base/error.h"
#include "base/process/rank_process.h"
#include "data/io/hash.h"

namespace titan::data {

namespace fs = std::filesystem;

namespace {

// Keeps a file that another process has made meanwhile: readers may already have seen its modification time.
void put_in_place(const fs::path& temporary, const fs::path& made) {
  if (::link(temporary.c_str(), made.c_str()) == 0 || errno == EEXIST) {
    fs::remove(temporary);
  } else {
    fs::rename(temporary, made);  // a file system without hard links
  }
}

// Waits for the process that makes the file; does not wait if the file system has no locks.
class Lock {
 public:
  explicit Lock(const fs::path& path) : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0) throw DataError("cannot write " + path.string() + ": " + std::strerror(errno));
    while (::flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() { ::close(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace

fs::path cache_folder() {
  if (const auto folder = get_env("TITAN_DATA_CACHE"); folder && !folder->empty()) return *folder;
  if (const auto folder = get_env("XDG_CACHE_HOME"); folder && !folder->empty())
    return fs::path(*folder) / "titan-train";
  if (const auto home = get_env("HOME"); home && !home->empty()) return fs::path(*home) / ".cache/titan-train";
  throw DataError("nowhere to keep what is made of data files: set TITAN_DATA_CACHE to a folder");
}

std::uint64_t key_of(const fs::path& path, const FileStamp& stamp) {
  std::uint64_t key = mix_bits(stamp.size) ^ static_cast<std::uint64_t>(stamp.changed_ns);
  const std::string name = fs::canonical(path).string();
  for (const char byte : name) key = mix_bits(key ^ static_cast<unsigned char>(byte));
  return key;
}

fs::path made_once(const std::string& name, const std::function<void(const fs::path&)>& write) {
  const fs::path folder = cache_folder();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw DataError("cannot make the folder " + folder.string() + ": " + error.message());
  const fs::path made = folder / name;
  if (fs::exists(made, error)) return made;
  const Lock lock(made.string() + ".lock");
  if (fs::exists(made, error)) return made;  // another process made it while this one waited
  // A unique name: without file locks, several processes write at once, and the first finished file is kept.
  const fs::path temporary = made.string() + "." + host_name() + "." + std::to_string(::getpid()) + ".tmp";
  try {
    write(temporary);
    put_in_place(temporary, made);
  } catch (...) {
    fs::remove(temporary, error);
    throw;
  }
  return made;
}

OutputFile::OutputFile(const fs::path& path)
    : path_(path), descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) throw DataError("cannot write " + path_.string() + ": " + std::strerror(errno));
}

OutputFile::~OutputFile() { ::close(descriptor_); }

void OutputFile::write(std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0)
      throw DataError("cannot write " + path_.string() + ": " + std::strerror(errno) +
                      ". Set TITAN_DATA_CACHE to a folder with room for it");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void OutputFile::sync() {
  if (::fsync(descriptor_) != 0) throw DataError("cannot write " + path_.string() + ": " + std::strerror(errno));
}

}  // namespace titan::data
