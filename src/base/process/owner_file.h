// Says in a file which process owns something, where locks are missing or hold on one node only (Lustre, NFS, FUSE).
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/process/ticker.h"

namespace titan {

// A process, as others that see its file system can know it.
struct Owner {
  std::string host;  // with the boot and the namespace of process ids: where `pid` has a meaning
  long pid = 0;
  std::string start;  // when it started: ids are used again
  std::string beat;   // changes while the owner lives

  bool operator==(const Owner&) const = default;
};

// Returns what `path` says; nothing where there is no such file, or no owner in it.
std::optional<Owner> read_owner(const std::filesystem::path& path);

// Returns whether the owner lives; nothing where that cannot be told, because it is a process of another node or
// container.
std::optional<bool> is_alive(const Owner& owner);

class OwnerFile {
 public:
  struct Times {
    std::chrono::milliseconds beat = std::chrono::seconds(4);    // how often an owner says that it lives
    std::chrono::milliseconds stale = std::chrono::seconds(20);  // without a sign of life for so long it is dead
  };

  // Makes `path` (O_EXCL), and removes it at the end. Where it is there, a dead owner's is taken over: at once for a
  // process of this node, after Times::stale without a sign of life for one of another. Throws ConfigError with the
  // text `busy` and the owner's name where it lives, and std::system_error where the file cannot be made.
  OwnerFile(std::filesystem::path path, const std::string& busy, Times times);
  OwnerFile(const std::filesystem::path& path, const std::string& busy) : OwnerFile(path, busy, Times()) {}
  ~OwnerFile();
  OwnerFile(const OwnerFile&) = delete;
  OwnerFile& operator=(const OwnerFile&) = delete;

 private:
  bool make();
  void wait_until_stale(const std::string& busy) const;
  bool take_away(const std::string& content) const;
  void write_beat();

  std::filesystem::path path_;
  Times times_;
  int fd_ = -1;
  long beats_ = 0;
  std::unique_ptr<Ticker> ticker_;
};

}  // namespace titan
