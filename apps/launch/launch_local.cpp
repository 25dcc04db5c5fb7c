#include "apps/launch/launch_local.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <system_error>
#include <thread>

#include "apps/launch/rank_output.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/process/memory.h"
#include "base/process/signal.h"
#include "base/text.h"

namespace titan {
namespace {

using std::chrono::steady_clock;
// A failed rank tells the others, which then exit by themselves. Ranks that still run after this time are killed.
constexpr std::chrono::milliseconds kGrace(5000), kShortGrace(200);

// Listening socket where the ranks will meet. It listens from the start, so that no other program can take the port
// before rank 0 is up, and no rank has to retry.
class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    const bool listens = fd_ >= 0 && bind(fd_, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                         listen(fd_, SOMAXCONN) == 0 &&
                         getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length) == 0;
    if (!listens) throw std::system_error(errno, std::generic_category(), "cannot listen on 127.0.0.1");
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { close(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const { return port_; }
  // Returns the socket and keeps it open through exec. Call it in the child process, after fork.
  int keep() const {
    fcntl(fd_, F_SETFD, 0);
    return fd_;
  }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
  int port_ = 0;
};

struct Rank {
  pid_t pid;
  int exit_code = -1;  // -1 while it runs
};

// True for codes whose reason the rank has printed: its own (base/error.h), or 128 + signal.
bool is_explained(int exit_code) {
  return exit_code == kExitSavedRequeue || exit_code <= kExitDiverged || exit_code > 128;
}

int exit_code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

// Starts a rank. Rank 0, which reports, keeps the terminal; lines of other ranks (warnings and errors) get the rank's
// name.
pid_t start_rank(const std::vector<std::string>& args, std::int64_t rank, std::int64_t nproc, const Listener& listener,
                 RankOutput& output) {
  std::vector<std::string> argument_texts = {"titan-train"};
  argument_texts.insert(argument_texts.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (auto& text : argument_texts) argv.push_back(text.data());
  argv.push_back(nullptr);
  const HeldSignals held;  // signals from here on also reach the new rank
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
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // no rank outlives its launcher, however it ends
  if (getppid() != parent) _exit(kExitPeerFailed);
  const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
  set("RANK", std::to_string(rank));
  set("LOCAL_RANK", std::to_string(rank));
  set("WORLD_SIZE", std::to_string(nproc));
  set("LOCAL_WORLD_SIZE", std::to_string(nproc));
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(listener.port()));
  if (rank == 0) set("TITAN_LISTEN_FD", std::to_string(listener.keep()));
  execv("/proc/self/exe", argv.data());
  _exit(kExitFailed);
}

void signal_all(const std::vector<Rank>& ranks, int signal) {
  for (const auto& rank : ranks) {
    if (rank.exit_code < 0) kill(rank.pid, signal);
  }
}

// The rank that failed first by itself, or the first that failed at all.
struct Failure {
  std::size_t rank;
  int exit_code;
  int signal;  // that ended it; 0: it exited
};

// Reports a rank that a signal has ended. `kills`: those before the ranks were started.
void say_signal(std::size_t rank, int signal, const MemoryKills& kills) {
  const std::string why = signal == SIGKILL ? memory_kills_since(kills) : "";
  std::fprintf(stderr, "titan-train: rank %zu was ended by %s%s\n", rank, signal_name(signal).c_str(),
               why.empty() ? "" : ("; " + why).c_str());
}

// Reaps ranks that ended, and sets `failed`. Does not report ranks that end because they were signalled or killed from
// here (`signalled`, `forced`); adds the killed ones to `hung`.
void reap(std::vector<Rank>& ranks, std::optional<Failure>& failed, std::vector<std::int64_t>& hung, bool signalled,
          bool forced, const MemoryKills& kills) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    int status = 0;
    if (ranks[i].exit_code >= 0 || waitpid(ranks[i].pid, &status, WNOHANG) != ranks[i].pid) continue;
    ranks[i].exit_code = exit_code_of(status);
    const bool bad = ranks[i].exit_code != kExitDone && ranks[i].exit_code != kExitSavedRequeue;
    const bool better = !failed || (failed->exit_code == kExitPeerFailed && !forced);
    if (forced && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) hung.push_back(static_cast<std::int64_t>(i));
    if (bad && better && WIFSIGNALED(status) && !signalled) say_signal(i, WTERMSIG(status), kills);
    if (bad && better && WIFEXITED(status) && !is_explained(ranks[i].exit_code)) {
      std::fprintf(stderr, "titan-train: rank %zu ended with exit code %d, which is not one of titan-train\n", i,
                   ranks[i].exit_code);
    }
    if (bad && better) failed = {i, ranks[i].exit_code, WIFSIGNALED(status) ? WTERMSIG(status) : 0};
  }
}

// Names ranks that reported success while another rank lost them: something in them has ended them.
void name_early_ends(const std::vector<Rank>& ranks) {
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (ranks[i].exit_code == kExitDone)
      std::fprintf(stderr, "titan-train: rank %zu ended with exit code 0 before the run was over\n", i);
}

// True if each rank but `one` ended because another one had failed.
bool all_others_followed(const std::vector<Rank>& ranks, std::size_t one) {
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (i != one && ranks[i].exit_code != kExitPeerFailed && ranks[i].exit_code != 128 + SIGKILL) return false;
  return true;
}

}  // namespace

void check_room_for(std::int64_t nproc) {
  const std::string why = too_many_ranks(nproc);
  if (why.empty()) return;
  throw ConfigError("error: --nproc " + std::to_string(nproc) + ": " + why +
                    "; start at most so many, or add --oversubscribe");
}

std::vector<std::string> arguments_of_ranks(const std::vector<std::string>& args) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < args.size(); ++i) {
    std::string flag = args[i].substr(0, args[i].find('='));
    std::ranges::replace(flag, '_', '-');
    if (flag == "--nproc" || flag == "--max-restarts" || flag == "--min-nproc") {
      if (flag.size() == args[i].size()) ++i;  // its value follows
    } else if (flag != "--oversubscribe") {
      out.push_back(args[i]);
    }
  }
  return out;
}

RanksEnd launch_local(const std::vector<std::string>& args, std::int64_t nproc) {
  if (const auto env = detect_launch(); env.launcher != Launcher::kAlone) {
    throw ConfigError(std::string("error: --nproc starts ranks, and ") + to_string(env.launcher) +
                      " has started this process as one: drop one of them");
  }
  const MemoryKills kills = memory_kills();
  Listener listener;
  RankOutput output;
  std::vector<Rank> ranks;
  // After a stop request no further ranks start, and the loop below ends the ones that run.
  while (std::ssize(ranks) < nproc && !stop_requested())
    ranks.push_back({start_rank(args, std::ssize(ranks), nproc, listener, output)});
  listener.close();  // rank 0 has its own copy: once it ends, nobody listens
  RanksEnd end;
  std::optional<Failure> failed;
  std::optional<steady_clock::time_point> failed_at;
  bool signal_sent = false, forced = false;
  const auto running = [&] {
    return std::any_of(ranks.begin(), ranks.end(), [](const Rank& r) { return r.exit_code < 0; });
  };
  while (running()) {
    output.forward(/*timeout_ms=*/10);
    if (const auto signal = stop_requested(); signal && !signal_sent) {
      signal_all(ranks, *signal);
      signal_sent = true;
    }
    reap(ranks, failed, end.hung, signal_sent, forced, kills);
    if (failed && !failed_at) {
      failed_at = steady_clock::now();
      end.unix_time = unix_now();
    }
    // Bad input is found before the ranks meet, so the others wait for a rank that is gone: end them soon. But rank 0
    // prints the message, and another rank may have found the error first, so wait until rank 0 has ended.
    const bool is_said = failed && failed->exit_code == kExitBadInput && ranks[0].exit_code >= 0;
    if (failed_at && steady_clock::now() - *failed_at > (is_said ? kShortGrace : kGrace)) {
      signal_all(ranks, SIGKILL);
      forced = true;
    }
  }
  output.drain();
  end.stop_signal = stop_requested();
  if (!failed) {
    end.unix_time = unix_now();
    end.exit_code = std::ssize(ranks) < nproc ? 128 + *end.stop_signal
                                              : std::ranges::max_element(ranks, {}, &Rank::exit_code)->exit_code;
    return end;
  }
  if (failed->exit_code == kExitPeerFailed) name_early_ends(ranks);
  end.exit_code = failed->exit_code;
  end.rank = static_cast<std::int64_t>(failed->rank);
  end.signal = failed->signal;
  end.is_alone = all_others_followed(ranks, failed->rank);
  return end;
}

}  // namespace titan
