#include "lab/sweep/process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fstream>
#include <system_error>

#include "base/error.h"
#include "base/process/file_lock.h"
#include "base/process/signal.h"
#include "base/text.h"

namespace titan::sweep {
namespace {

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

class Fd {
 public:
  Fd(const std::filesystem::path& path, int flags) : fd_(::open(path.c_str(), flags, 0666)) {
    if (fd_ < 0) fail("open " + path.string());
  }
  ~Fd() { ::close(fd_); }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

bool is_dropped(const std::string& name) {
  static const std::vector<std::string> kRankNames = {"RANK",        "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
                                                      "MASTER_ADDR", "MASTER_PORT"};
  if (std::ranges::count(kRankNames, name) > 0) return true;
  return name.starts_with("TITAN_") && name.find("__") != std::string::npos;
}

std::vector<std::string> environment_of(const Launch& launch) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    if (!is_dropped(name) && !launch.environment.contains(name)) out.push_back(text);
  }
  for (const auto& [name, value] : launch.environment) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (auto& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// Runs in the new process before it becomes the program. After a fork only system calls are safe.
void become(const Launch& launch, pid_t parent, int log, int null, char* const* argv, char* const* envp) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kExitPeerFailed);
  ::setsid();
  if (!launch.cores.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int core : launch.cores) CPU_SET(core, &set);
    ::sched_setaffinity(0, sizeof(set), &set);
  }
  ::dup2(null, STDIN_FILENO);
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::execvpe(argv[0], argv, envp);
  for (const char* text : {"titan-train sweep: error: cannot start ", static_cast<const char*>(argv[0]), ": ",
                           static_cast<const char*>(::strerrordesc_np(errno)), "\n"})
    if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) break;
  ::_exit(127);
}

// Slurm repeats below the program's own message that a task has failed.
bool tells_of_error(std::string line) {
  if (line.starts_with("srun: ")) return false;
  std::ranges::transform(line, line.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* word : {"error", "titan-train: rank", "cannot", "failed", "killed", "was ended by"})
    if (line.find(word) != std::string::npos) return true;
  return false;
}

}  // namespace

std::optional<pid_t> start_process(const Launch& launch) {
  // No O_CLOEXEC: the process and its ranks inherit the lock, which is held until the last of them ends.
  const Fd lock(launch.lock, O_RDWR | O_CREAT);
  // Ranks of an earlier driver ended with it, so a file system without locks is safe too.
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && !has_no_locks(errno)) {
    if (errno == EWOULDBLOCK) return std::nullopt;
    fail("lock " + launch.lock.string());
  }
  const Fd log(launch.log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC);
  const Fd null("/dev/null", O_RDONLY | O_CLOEXEC);
  auto words = launch.words;
  auto variables = environment_of(launch);
  const auto argv = pointers(words), envp = pointers(variables);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) fail("cannot start " + launch.words.front());
  if (pid == 0) become(launch, parent, log.get(), null.get(), argv.data(), envp.data());
  return pid;
}

std::optional<Exit> poll_process(pid_t pid) {
  int status = 0;
  if (::waitpid(pid, &status, WNOHANG) != pid) return std::nullopt;
  if (WIFSIGNALED(status)) return Exit{128 + WTERMSIG(status), WTERMSIG(status)};
  return Exit{WEXITSTATUS(status), 0};
}

void signal_process(pid_t pid, int signal, bool whole_group) { ::kill(whole_group ? -pid : pid, signal); }

std::string last_error_line(const std::filesystem::path& log, std::size_t max_length) {
  constexpr std::streamoff kTail = 64 << 10;
  std::ifstream in(log, std::ios::binary | std::ios::ate);
  if (!in) return {};
  in.seekg(std::max<std::streamoff>(0, static_cast<std::streamoff>(in.tellg()) - kTail));
  std::string last, error;
  for (std::string line; std::getline(in, line);) {
    const std::string text(trim(line));
    // Skip a caret's line; it belongs to the message before it.
    if (text.empty() || text.find_first_not_of("|^ ") == std::string::npos) continue;
    last = text;
    if (tells_of_error(text)) error = text;
  }
  std::string out = error.empty() ? last : error;
  if (out.size() > max_length) out = out.substr(0, max_length - 3) + "...";
  return out;
}

}  // namespace titan::sweep
