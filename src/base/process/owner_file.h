// Records in a file which process owns something, for file systems where locks are missing or hold
// on one node only (Lustre, NFS, FUSE).
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/threads/ticker.h"

namespace titan {

// A process, identified for other processes that see the same file system.
struct Owner {
  std::string host;  // with the boot id and pid namespace, in which `pid` is valid
  long pid = 0;
  std::string start;  // start time, because ids are reused
  std::string beat;   // changes while the owner lives

  bool operator==(const Owner&) const = default;
};

// Reads the owner from `path`; nullopt if the file does not exist or names no owner.
std::optional<Owner> read_owner(const std::filesystem::path& path);

// True if the owner is alive; nullopt if that is unknown, because it runs on another node or in another container.
std::optional<bool> is_alive(const Owner& owner);

class OwnerFile {
 public:
  struct Times {
    std::chrono::milliseconds beat = std::chrono::seconds(4);    // period of an owner's heartbeat
    std::chrono::milliseconds stale = std::chrono::seconds(20);  // an owner without a heartbeat for this long is dead
  };

  // Creates `path` (O_EXCL); the destructor removes it. Takes over the file of a dead owner: at once if that
  // was a process of this node, else after Times::stale without a heartbeat. Throws ConfigError with the text
  // `busy` and the owner's name if the owner is alive, and std::system_error if the file cannot be created.
  OwnerFile(std::filesystem::path path, const std::string& busy, Times times);
  OwnerFile(const std::filesystem::path& path, const std::string& busy) : OwnerFile(path, busy, Times()) {}
  ~OwnerFile();
  OwnerFile(const OwnerFile&) = delete;
  OwnerFile& operator=(const OwnerFile&) = delete;

  // True if the file exists and names this process: others are refused. Any thread may call this.
  bool is_in_place() const;

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
