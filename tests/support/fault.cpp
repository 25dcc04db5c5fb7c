// libtitan_fault.so, preloaded into the program by tests: makes a fault happen at a named call, not at some point in
// time.
//
//   TITAN_FAULT="rank=1 call=fsync path=*step-3.tmp* n=2 do=kill; rank=0 call=write path=*metrics.jsonl n=6
//   do=gate:/…/g"
//
// A rule counts the calls of this process that match it, from 1. It matches by
//   rank   RANK, or mpirun's or Slurm's variable of the same meaning, 0 if none is set (default: every rank)
//   call   write (pwrite, writev, pwritev), fsync (fdatasync), rename (renameat2), unlink (unlinkat), mkdir, open (for
//          writing); several are joined with '+' (default: all of these); and, only if named, read (pread), flock, look
//          (stat), open_read (for reading) and thread (pthread_create; its path is empty)
//   path   a pattern of fnmatch(3), whose * also matches slashes, for the absolute path if known; for a rename the old
//          path (default: every path)
//   times  the number of calls that fail with do=errno (default: no limit)
//   after  a file; calls before it exists do not count
//   until  a file; calls once it exists do not count
// and acts on the n-th call (default: the first) by
//   do=kill        SIGKILL to this process, before the call
//   do=exit:N      exit(N), before the call
//   do=_exit:N     the same without handlers and destructors
//   do=gate:FILE   makes FILE.reached after the call, then waits until FILE.go exists; FILE.signalled shows that a
//                  handler of this program for signals of others has run meanwhile
//   do=errno:N     fails with that errno: the n-th call and every later one, or `times` calls
//   do=spoil:FILE  overwrites with NaN every place of this process's memory that holds the bytes of FILE, the float32
//                  values of a tensor; set TITAN_HOST_ARENA=0, since a large range takes long to search
//   do=flip:FILE   inverts a bit, the highest of a float32's mantissa, of every place in this process's memory that has
//                  the bytes of FILE, and ends the process if there is none
//   do=clock:N     from here on this process's calendar clock is N seconds off; monotonic clocks go on
//   do=log:FILE    appends "CALL PATH" to FILE: every call from the n-th on
//   once=FILE      the rule does nothing if FILE exists or cannot be made: once for all processes and restarts
//
// Calls of signal handlers do not count. It acts only in titan-train and checkpoint_tool, not in Python or launchers
// that are preloaded with it.
#include <dlfcn.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

struct Rule {
  int rank = -1;
  std::string calls, path = "*", action, argument, once, after, until;
  int n = 1, times = INT_MAX;
  std::atomic<int> seen = 0;
};

[[noreturn]] void refuse(const std::string& word) {
  std::fprintf(stderr, "TITAN_FAULT: cannot read '%s'\n", word.c_str());
  ::_exit(99);
}

void read_word(Rule& rule, const std::string& word) {
  const auto equals = word.find('=');
  const std::string key = word.substr(0, equals), value = equals == std::string::npos ? "" : word.substr(equals + 1);
  if (key == "rank") {
    rule.rank = std::stoi(value);
  } else if (key == "call") {
    rule.calls = "+" + value + "+";
  } else if (key == "path") {
    rule.path = value;
  } else if (key == "n") {
    rule.n = std::stoi(value);
  } else if (key == "times") {
    rule.times = std::stoi(value);
  } else if (key == "after") {
    rule.after = value;
  } else if (key == "until") {
    rule.until = value;
  } else if (key == "once") {
    rule.once = value;
  } else if (key == "do") {
    const auto colon = value.find(':');
    rule.action = value.substr(0, colon);
    if (colon != std::string::npos) rule.argument = value.substr(colon + 1);
    if (rule.action != "kill" && rule.action != "gate" && rule.action != "errno" && rule.action != "log" &&
        rule.action != "exit" && rule.action != "_exit" && rule.action != "spoil" && rule.action != "flip" &&
        rule.action != "clock")
      refuse(word);
  } else {
    refuse(word);
  }
}

bool is_titan_train() {
  char path[PATH_MAX];
  const auto length = ::readlink("/proc/self/exe", path, sizeof(path));
  const std::string program(path, static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  return program.ends_with("/titan-train") || program.ends_with("/checkpoint_tool");
}

int own_rank() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"})
    if (const char* value = std::getenv(name)) return std::atoi(value);
  return 0;
}

// Returns the rules, which are never destroyed: calls come until the process ends.
std::deque<Rule>& rules() {
  static auto& all = *new std::deque<Rule>;
  return all;
}

__attribute__((constructor)) void read_rules() {
  const char* text = std::getenv("TITAN_FAULT");
  if (!text || !is_titan_train()) return;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line, ';');) {
    std::istringstream words(line);
    Rule& rule = rules().emplace_back();
    for (std::string word; words >> word;) read_word(rule, word);
    if (rule.action.empty()) refuse(line);
    if (rule.rank >= 0 && rule.rank != own_rank()) rules().pop_back();
  }
}

std::atomic<std::time_t> clock_shift = 0;  // seconds; see do=clock

// Makes a file without the functions of this file; a signal handler may call it.
bool make_file(const char* path, int flags) {
  const long fd = ::syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
  if (fd >= 0) ::syscall(SYS_close, fd);
  return fd >= 0;
}

void append(const std::string& path, const std::string& line) {
  const long fd = ::syscall(SYS_openat, AT_FDCWD, path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0 || ::syscall(SYS_write, fd, line.data(), line.size()) < 0) std::abort();
  ::syscall(SYS_close, fd);
}

// The program's own handlers, and the file that shows that one of them ran: empty until a thread waits at a gate.
struct sigaction handlers[NSIG];
char signalled[PATH_MAX];

// Counts the handlers that run on this thread. Their calls match no rule: matching allocates, and a signal may come
// while malloc() holds its lock.
__attribute__((tls_model("initial-exec"))) thread_local int running_handlers = 0;

bool has_rules() { return !rules().empty() && running_handlers == 0; }

void handle(int number, siginfo_t* info, void* context) {
  const struct sigaction& own = handlers[number];
  const bool is_plain = !(own.sa_flags & SA_SIGINFO);  // those with more arguments are of crashes and stacks
  ++running_handlers;
  if (is_plain)
    own.sa_handler(number);
  else
    own.sa_sigaction(number, info, context);
  --running_handlers;
  const int saved = errno;
  if (is_plain && *signalled) make_file(signalled, 0);
  errno = saved;
}

void wait_at_gate(const std::string& gate) {
  std::snprintf(signalled, sizeof(signalled), "%s.signalled", gate.c_str());
  if (!make_file((gate + ".reached").c_str(), 0)) std::abort();
  const timespec pause{0, 1'000'000};
  while (::access((gate + ".go").c_str(), F_OK) != 0) ::nanosleep(&pause, nullptr);
}

std::string path_of(int fd) {
  if (fd == AT_FDCWD) return ".";
  char path[PATH_MAX];
  const auto length = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof(path));
  return length > 0 ? std::string(path, static_cast<std::size_t>(length)) : "";
}

std::string path_at(int folder, const char* path) {
  if (*path == '/') return path;
  if (folder != AT_FDCWD) return path_of(folder) + "/" + path;
  char here[PATH_MAX];
  return (::getcwd(here, sizeof(here)) ? std::string(here) : std::string()) + "/" + path;
}

// Calls found(address) for each place in this process's writable memory that has the bytes of `pattern`, except in that
// and in its own buffer. Other threads may unmap memory meanwhile, so the kernel copies it.
template <class Function>
void search_memory(const std::string& pattern, Function&& found) {
  const std::size_t overlap = pattern.size() - 1;
  std::string block((std::size_t{1} << 22) + overlap, '\0');
  const auto is_within = [](const char* place, const std::string& text) {
    return place >= text.data() && place < text.data() + text.size();
  };
  const long memory = ::syscall(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDONLY | O_CLOEXEC);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    char mode[5] = {};
    // Not what ranks share: reading the holes of a large sparse range would fill them.
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, mode) != 3) continue;
    if (std::string_view(mode, 2) != "rw" || mode[3] != 'p') continue;
    for (unsigned long at = begin; at < end; at += block.size() - overlap) {
      const long length = ::syscall(SYS_pread64, memory, block.data(), std::min(block.size(), end - at), at);
      for (std::size_t i = 0; length > 0; ++i) {
        i = std::string_view(block.data(), static_cast<std::size_t>(length)).find(pattern, i);
        if (i == std::string::npos) break;
        char* const place = reinterpret_cast<char*>(at + i);
        if (!is_within(place, pattern) && !is_within(place, block)) found(place);
      }
    }
  }
  ::syscall(SYS_close, memory);
}

// Reads a small file without a buffer, which would be one more place with its bytes.
std::string bytes_of(const std::string& file) {
  std::string bytes(std::size_t{1} << 20, '\0');
  const long fd = ::syscall(SYS_openat, AT_FDCWD, file.c_str(), O_RDONLY | O_CLOEXEC);
  bytes.resize(static_cast<std::size_t>(std::max(0L, ::syscall(SYS_read, fd, bytes.data(), bytes.size()))));
  ::syscall(SYS_close, fd);
  return bytes;
}

// Calls edit(place, number of bytes) for each place that has the bytes of a file; ends the process if there is none.
template <class Function>
void edit_memory(const std::string& file, Function&& edit) {
  const std::string pattern = bytes_of(file);
  int places = 0;
  if (!pattern.empty()) {
    search_memory(pattern, [&](char* place) {
      edit(place, pattern.size());
      ++places;
    });
  }
  if (places > 0) return;
  std::fprintf(stderr, "TITAN_FAULT: the bytes of %s are nowhere\n", file.c_str());
  ::_exit(99);
}

void flip(const std::string& file) {
  edit_memory(file, [](char* place, std::size_t) { place[2] ^= 0x40; });
}

void spoil(const std::string& file) {
  edit_memory(file, [](char* place, std::size_t size) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (std::size_t i = 0; i + sizeof(nan) <= size; i += sizeof(nan)) std::memcpy(place + i, &nan, sizeof(nan));
  });
}

// True for calls that change nothing, which a rule must name.
bool is_quiet(std::string_view call) {
  return call == "read" || call == "flock" || call == "look" || call == "open_read" || call == "thread";
}

// One call: the constructor acts before it, the destructor after it.
class Call {
 public:
  Call(const char* name, const std::string& path) {
    for (auto& rule : rules()) {
      const bool is_any = rule.calls.empty() && !is_quiet(name);
      if (!is_any && rule.calls.find("+" + std::string(name) + "+") == std::string::npos) continue;
      if (::fnmatch(rule.path.c_str(), path.c_str(), 0) != 0) continue;
      if (!rule.after.empty() && ::access(rule.after.c_str(), F_OK) != 0) continue;
      if (!rule.until.empty() && ::access(rule.until.c_str(), F_OK) == 0) continue;
      const int seen = ++rule.seen;
      const bool goes_on = rule.action == "errno" || rule.action == "log";
      if (goes_on ? seen < rule.n || seen - rule.n >= rule.times : seen != rule.n) continue;
      if (!rule.once.empty() && !make_file(rule.once.c_str(), O_EXCL)) continue;
      if (rule.action == "kill") ::kill(::getpid(), SIGKILL);
      if (rule.action == "exit") std::exit(std::stoi(rule.argument));
      if (rule.action == "_exit") ::_exit(std::stoi(rule.argument));
      if (rule.action == "errno") error_ = std::stoi(rule.argument);
      if (rule.action == "log") append(rule.argument, std::string(name) + " " + path + "\n");
      if (rule.action == "spoil") spoil(rule.argument);
      if (rule.action == "flip") flip(rule.argument);
      if (rule.action == "clock") clock_shift = std::stoll(rule.argument);
      if (rule.action == "gate") gate_ = rule.argument;
    }
  }
  ~Call() {
    const int saved = errno;
    if (!gate_.empty()) wait_at_gate(gate_);
    errno = error_ != 0 ? error_ : saved;
  }
  bool fails() const { return error_ != 0; }
  int error() const { return error_; }

 private:
  int error_ = 0;
  std::string gate_;
};

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

int open_by(int (*real)(const char*, int, ...), const char* path, int flags, mode_t mode) {
  if (!has_rules()) return real(path, flags, mode);
  const Call call((flags & O_ACCMODE) == O_RDONLY ? "open_read" : "open", path_at(AT_FDCWD, path));
  return call.fails() ? -1 : real(path, flags, mode);
}

}  // namespace

// Applies the rules, and calls the next function of the same name, after this library.
#define TITAN_FAULT_PASS_ON(function, name, path, ...)          \
  static const auto real = next<decltype(function)>(#function); \
  if (!has_rules()) return real(__VA_ARGS__);                   \
  const Call call(name, path);                                  \
  return call.fails() ? static_cast<decltype(real(__VA_ARGS__))>(-1) : real(__VA_ARGS__)

extern "C" {

ssize_t write(int fd, const void* data, size_t size) {
  TITAN_FAULT_PASS_ON(write, "write", path_of(fd), fd, data, size);
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t at) {
  TITAN_FAULT_PASS_ON(pwrite, "write", path_of(fd), fd, data, size, at);
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t at) {
  TITAN_FAULT_PASS_ON(pwrite64, "write", path_of(fd), fd, data, size, at);
}
ssize_t writev(int fd, const iovec* parts, int count) {
  TITAN_FAULT_PASS_ON(writev, "write", path_of(fd), fd, parts, count);
}
ssize_t pwritev(int fd, const iovec* parts, int count, off_t at) {
  TITAN_FAULT_PASS_ON(pwritev, "write", path_of(fd), fd, parts, count, at);
}
ssize_t pread(int fd, void* data, size_t size, off_t at) {
  TITAN_FAULT_PASS_ON(pread, "read", path_of(fd), fd, data, size, at);
}
ssize_t pread64(int fd, void* data, size_t size, off64_t at) {
  TITAN_FAULT_PASS_ON(pread64, "read", path_of(fd), fd, data, size, at);
}
int stat(const char* path, struct stat* status) noexcept {
  TITAN_FAULT_PASS_ON(stat, "look", path_at(AT_FDCWD, path), path, status);
}
int flock(int fd, int operation) noexcept { TITAN_FAULT_PASS_ON(flock, "flock", path_of(fd), fd, operation); }
int fsync(int fd) { TITAN_FAULT_PASS_ON(fsync, "fsync", path_of(fd), fd); }
int fdatasync(int fd) { TITAN_FAULT_PASS_ON(fdatasync, "fsync", path_of(fd), fd); }
int rename(const char* from, const char* to) noexcept {
  TITAN_FAULT_PASS_ON(rename, "rename", path_at(AT_FDCWD, from), from, to);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  TITAN_FAULT_PASS_ON(renameat2, "rename", path_at(from_folder, from), from_folder, from, to_folder, to, flags);
}
int unlink(const char* path) noexcept { TITAN_FAULT_PASS_ON(unlink, "unlink", path_at(AT_FDCWD, path), path); }
int unlinkat(int folder, const char* path, int flags) noexcept {
  TITAN_FAULT_PASS_ON(unlinkat, "unlink", path_at(folder, path), folder, path, flags);
}
int mkdir(const char* path, mode_t mode) noexcept {
  TITAN_FAULT_PASS_ON(mkdir, "mkdir", path_at(AT_FDCWD, path), path, mode);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) noexcept {
  static const auto real = next<decltype(pthread_create)>("pthread_create");
  if (!has_rules()) return real(thread, attributes, body, argument);
  const Call call("thread", "");
  return call.fails() ? call.error() : real(thread, attributes, body, argument);
}

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  static const auto real = next<decltype(clock_gettime)>("clock_gettime");
  const int result = real(clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += clock_shift;
  return result;
}
time_t time(time_t* now) noexcept {
  timespec found{};
  clock_gettime(CLOCK_REALTIME, &found);
  if (now) *now = found.tv_sec;
  return found.tv_sec;
}

int sigaction(int number, const struct sigaction* action, struct sigaction* before) noexcept {
  static const auto real = next<decltype(sigaction)>("sigaction");
  const bool is_handler =
      action && ((action->sa_flags & SA_SIGINFO) || (action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN));
  if (rules().empty() || !is_handler) return real(number, action, before);
  handlers[number] = *action;
  struct sigaction own = *action;
  own.sa_flags |= SA_SIGINFO;
  own.sa_sigaction = handle;
  return real(number, &own, before);
}

// Reads the third argument of open(), which is only passed if a file may be made.
#define TITAN_FAULT_MODE(flags, last)               \
  mode_t mode = 0;                                  \
  if (((flags)&O_CREAT) || ((flags)&__O_TMPFILE)) { \
    va_list rest;                                   \
    va_start(rest, last);                           \
    mode = va_arg(rest, mode_t);                    \
    va_end(rest);                                   \
  }

int open(const char* path, int flags, ...) {
  TITAN_FAULT_MODE(flags, flags)
  static const auto real = next<decltype(open)>("open");
  return open_by(real, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  TITAN_FAULT_MODE(flags, flags)
  static const auto real = next<decltype(open64)>("open64");
  return open_by(real, path, flags, mode);
}

}  // extern "C"
