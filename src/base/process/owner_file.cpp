#include "base/process/owner_file.h"

#include <fcntl.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/fs.h"
#include "base/process/process_stat.h"
#include "base/process/rank_process.h"

namespace titan {
namespace fs = std::filesystem;
namespace {

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Returns "-" if there is no file.
std::string first_word_of(const char* path) {
  std::ifstream in(path);
  std::string word;
  in >> word;
  return word.empty() ? "-" : word;
}

// Two containers of one machine may share its name, but never their process ids.
std::string own_host() {
  struct stat space {};
  ::stat("/proc/self/ns/pid", &space);
  return host_name() + "/" + first_word_of("/proc/sys/kernel/random/boot_id") + "/" + std::to_string(space.st_ino);
}

// The start of a process of which the system does not say it.
constexpr const char* kUnknownStart = "0";

std::optional<Owner> parse(const std::string& content) {
  std::istringstream words(content);
  Owner owner;
  std::string end;
  if (!(words >> owner.host >> owner.pid >> owner.start >> owner.beat >> end) || end != "end") return std::nullopt;
  return owner;
}

std::string name_of(const std::string& content) {
  const auto owner = parse(content);
  if (!owner) return "an unknown process";
  return "process " + std::to_string(owner->pid) + " on " + owner->host.substr(0, owner->host.find('/'));
}

}  // namespace

std::optional<Owner> read_owner(const fs::path& path) { return parse(content_of(path)); }

std::optional<bool> is_alive(const Owner& owner) {
  if (owner.host != own_host()) return std::nullopt;
  const ProcessStat stat = read_process_stat(static_cast<pid_t>(owner.pid));
  if (!stat.is_known() || owner.start == kUnknownStart) return std::nullopt;
  return !stat.has_ended() && std::to_string(stat.start_time) == owner.start;
}

OwnerFile::OwnerFile(fs::path path, const std::string& busy, Times times) : path_(std::move(path)), times_(times) {
  while (!make()) {
    const std::string content = content_of(path_);
    const auto owner = parse(content);
    const auto alive = owner ? is_alive(*owner) : std::nullopt;
    if (alive && *alive) throw ConfigError(busy + " (" + name_of(content) + ")");
    if (!alive) wait_until_stale(busy);
    if (alive) take_away(content);
  }
  ticker_ = std::make_unique<Ticker>("keeps " + path_.string() + " ours", times_.beat, [this] { write_beat(); });
}

OwnerFile::~OwnerFile() {
  ticker_.reset();
  if (fd_ < 0) return;
  ::close(fd_);
  std::error_code ignored;
  if (is_in_place()) fs::remove(path_, ignored);
}

bool OwnerFile::is_in_place() const {
  const auto owner = read_owner(path_);
  return owner && owner->host == own_host() && owner->pid == ::getpid() &&
         owner->start == std::to_string(read_process_stat(::getpid()).start_time);
}

bool OwnerFile::make() {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ >= 0) {
    write_beat();
    return true;
  }
  if (errno != EEXIST) throw std::system_error(errno, std::generic_category(), "make " + path_.string());
  return false;
}

// Returns early if the file disappears. Throws if it changes: its owner is alive.
void OwnerFile::wait_until_stale(const std::string& busy) const {
  const std::string content = content_of(path_);
  if (!fs::exists(path_)) return;
  spdlog::warn("{} says that {} works there; waiting {} s for a sign of life", path_.string(), name_of(content),
               std::chrono::duration<double>(times_.stale).count());
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < times_.stale) {
    std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(times_.beat, std::chrono::milliseconds(250)));
    const std::string now = content_of(path_);
    if (!fs::exists(path_)) return;
    if (now != content) throw ConfigError(busy + " (" + name_of(now) + ")");
  }
  take_away(content);
}

// Moves the file away, so that only one of several processes that find the same dead owner gets it.
// Puts it back if another process has created it anew meanwhile.
bool OwnerFile::take_away(const std::string& content) const {
  const fs::path mine = path_.string() + "." + host_name() + "." + std::to_string(::getpid());
  std::error_code error;
  fs::rename(path_, mine, error);
  if (error) return false;
  const bool is_dead_owners = content_of(mine) == content;
  if (is_dead_owners) {
    fs::remove(mine, error);
  } else {
    fs::rename(mine, path_, error);
  }
  return is_dead_owners;
}

// Overwrites in place with a line of constant length, so that a reader always sees a complete line.
void OwnerFile::write_beat() {
  char beat[24];
  std::snprintf(beat, sizeof(beat), "%012ld", ++beats_);
  const std::string line = own_host() + " " + std::to_string(::getpid()) + " " +
                           std::to_string(read_process_stat(::getpid()).start_time) + " " + beat + " end\n";
  // A heartbeat that cannot be written is missed; the next one may succeed.
  if (::pwrite(fd_, line.data(), line.size(), 0) < 0) return;
}

}  // namespace titan
