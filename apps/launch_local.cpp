#include "apps/launch_local.h"

#include <arpa/inet.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "apps/rank_output.h"
#include "base/env.h"
#include "base/error.h"
#include "base/signal.h"

namespace titan {
namespace {

using Clock = std::chrono::steady_clock;
// A failed rank tells the others, which then end by themselves; what is left after this is ended by force.
constexpr std::chrono::milliseconds kGrace(5000), kShortGrace(200);

int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  const bool bound = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  if (fd >= 0) close(fd);
  if (!bound) throw std::system_error(errno, std::generic_category(), "no free port on 127.0.0.1");
  return ntohs(address.sin_port);
}

struct Rank {
  pid_t pid;
  int exit_code = -1;  // -1: runs
};

int exit_code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

// Rank 0 keeps the terminal: it is the one that reports. What others say, warnings and errors, gets their names.
pid_t start_rank(const std::vector<std::string>& args, std::int64_t rank, std::int64_t nproc, int port,
                 RankOutput& output) {
  std::vector<std::string> argument_texts = {"titan-train"};
  argument_texts.insert(argument_texts.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (auto& text : argument_texts) argv.push_back(text.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const int out = rank > 0 ? output.open(rank, STDOUT_FILENO) : -1;
  const int err = rank > 0 ? output.open(rank, STDERR_FILENO) : -1;
  const pid_t pid = fork();
  if (pid != 0) {
    if (rank > 0) close(out), close(err);
    if (pid < 0) throw std::system_error(errno, std::generic_category(), "cannot start rank " + std::to_string(rank));
    return pid;
  }
  if (rank > 0) dup2(out, STDOUT_FILENO), dup2(err, STDERR_FILENO);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // no rank outlives its launcher, however that ends
  if (getppid() != parent) _exit(kExitPeerFailed);
  const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
  set("RANK", std::to_string(rank));
  set("LOCAL_RANK", std::to_string(rank));
  set("WORLD_SIZE", std::to_string(nproc));
  set("LOCAL_WORLD_SIZE", std::to_string(nproc));
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(port));
  execv("/proc/self/exe", argv.data());
  _exit(kExitFailed);
}

void signal_all(const std::vector<Rank>& ranks, int signal) {
  for (const auto& rank : ranks) {
    if (rank.exit_code < 0) kill(rank.pid, signal);
  }
}

// Reaps ranks that ended; sets `failed` to the code of the first that ended badly.
void reap(std::vector<Rank>& ranks, std::optional<int>& failed) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    int status = 0;
    if (ranks[i].exit_code >= 0 || waitpid(ranks[i].pid, &status, WNOHANG) != ranks[i].pid) continue;
    ranks[i].exit_code = exit_code_of(status);
    const bool bad = ranks[i].exit_code != kExitDone && ranks[i].exit_code != kExitSavedRequeue;
    if (bad && WIFSIGNALED(status) && !failed) {  // later ones are ended from here
      std::fprintf(stderr, "titan-train: rank %zu was ended by %s\n", i, signal_name(WTERMSIG(status)).c_str());
    }
    if (bad && !failed) failed = ranks[i].exit_code;
  }
}

}  // namespace

std::vector<std::string> without_nproc(const std::vector<std::string>& args) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--nproc") {
      ++i;
    } else if (!args[i].starts_with("--nproc=")) {
      out.push_back(args[i]);
    }
  }
  return out;
}

int launch_local(const std::vector<std::string>& args, std::int64_t nproc) {
  if (const auto env = detect_launch(); env.launcher != Launcher::kAlone) {
    throw ConfigError(std::string("error: --nproc starts ranks, and ") + to_string(env.launcher) +
                      " has started this process as one: drop one of them");
  }
  const int port = free_port();
  RankOutput output;
  std::vector<Rank> ranks;
  for (std::int64_t rank = 0; rank < nproc; ++rank) ranks.push_back({start_rank(args, rank, nproc, port, output)});
  std::optional<int> failed;
  std::optional<Clock::time_point> deadline;
  bool signal_sent = false;
  const auto running = [&] {
    return std::any_of(ranks.begin(), ranks.end(), [](const Rank& r) { return r.exit_code < 0; });
  };
  while (running()) {
    output.forward(/*timeout_ms=*/10);
    if (const auto signal = stop_requested(); signal && !signal_sent) {
      signal_all(ranks, *signal);
      signal_sent = true;
    }
    reap(ranks, failed);
    // Bad input is found before ranks meet: the others wait for one that is gone.
    if (failed && !deadline) deadline = Clock::now() + (*failed == kExitBadInput ? kShortGrace : kGrace);
    if (deadline && Clock::now() > *deadline) signal_all(ranks, SIGKILL);
  }
  output.drain();
  if (failed) return *failed;
  return std::max_element(ranks.begin(), ranks.end(),
                          [](const Rank& a, const Rank& b) { return a.exit_code < b.exit_code; })
      ->exit_code;
}

}  // namespace titan
