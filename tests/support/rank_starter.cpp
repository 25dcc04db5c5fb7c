#include "tests/support/rank_starter.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>

namespace titan::test {
namespace {

int g_starter = -1;  // this process's end of the connection

void check(bool condition, const char* what) {
  if (condition) return;
  std::perror(what);
  std::abort();
}

void become_rank(const RankStart& start, int rank) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string log = std::string(start.folder) + "/" + std::to_string(rank) + ".log";
  const int output = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  check(output >= 0 && ::dup2(output, STDOUT_FILENO) >= 0 && ::dup2(output, STDERR_FILENO) >= 0, log.c_str());
  ::close(output);
  ::setenv("TMPDIR", start.folder, 1);
  ::setenv("TITAN_TEST_RANK", std::to_string(rank).c_str(), 1);
}

RankEnds wait_for(const std::vector<pid_t>& ranks, int guard_ms) {
  RankEnds ends{};
  std::vector<bool> ended(ranks.size());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(guard_ms);
  for (std::size_t running = ranks.size(); running > 0;) {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (ended[i] || ::waitpid(ranks[i], &ends.status[i], WNOHANG) != ranks[i]) continue;
      ended[i] = true;
      --running;
    }
    if (!ends.timed_out && std::chrono::steady_clock::now() > deadline) {
      ends.timed_out = true;
      for (std::size_t i = 0; i < ranks.size(); ++i)
        if (!ended[i]) ::kill(ranks[i], SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return ends;
}

// Starts ranks on request. Returns only in ranks, with the name of the test.
std::string serve(int connection) {
  for (;;) {
    RankStart start{};
    if (::recv(connection, &start, sizeof(start), 0) != sizeof(start)) ::_exit(0);  // the tests are over
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < start.num_ranks; ++rank) {
      const pid_t pid = ::fork();
      check(pid >= 0, "fork");
      if (pid == 0) {
        ::close(connection);
        become_rank(start, rank);
        return start.test;
      }
      ranks.push_back(pid);
    }
    const RankEnds ends = wait_for(ranks, start.guard_ms);
    check(::send(connection, &ends, sizeof(ends), 0) == sizeof(ends), "send");
  }
}

// True if a library has started threads. Sanitizers have threads of their own, which they restart after a fork.
bool has_threads() {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return false;
#else
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks)) != 1;
#endif
}

}  // namespace

std::optional<std::string> fork_rank_starter() {
  if (has_threads()) throw std::logic_error("a library starts threads when it is loaded: ranks cannot be forked");
  int ends[2];
  check(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
  const pid_t pid = ::fork();
  check(pid >= 0, "fork");
  ::close(ends[pid == 0 ? 0 : 1]);
  if (pid != 0) {
    g_starter = ends[0];
    return std::nullopt;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  return serve(ends[1]);
}

RankEnds run_ranks(const RankStart& start) {
  RankEnds ends{};
  check(::send(g_starter, &start, sizeof(start), MSG_NOSIGNAL) == sizeof(start), "the starter of ranks");
  check(::recv(g_starter, &ends, sizeof(ends), 0) == sizeof(ends), "the starter of ranks");
  return ends;
}

}  // namespace titan::test
