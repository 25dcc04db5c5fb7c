// Signals change the state of a whole process, so each case runs in a child process of its own (fork before any
// thread).
#include "base/process/signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "tests/support/guard.h"

namespace titan {
namespace {

constexpr int kBodyFailed = 99;

// Runs `body` in a child. Returns its exit code, or minus the signal that ended it.
int run_in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// A clock that only the test moves.
constexpr std::int64_t kSameRequestNs = 200'000'000;  // signal.h's 0.2 s
std::atomic<std::int64_t> g_hand_ns{1};
std::int64_t hand_ns() { return g_hand_ns; }

TEST(Signal, NothingIsRequestedAtFirst) {
  EXPECT_EQ(run_in_child([] {
              install_signal_handlers();
              return stop_requested() ? kBodyFailed : 0;
            }),
            0);
}

TEST(Signal, WithoutHandlersSigtermEndsTheProcess) {
  EXPECT_EQ(run_in_child([] { return raise(SIGTERM) == 0 ? 0 : kBodyFailed; }), -SIGTERM);
}

TEST(Signal, FirstSignalIsRememberedAndTheProcessGoesOn) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGXCPU}) {
    EXPECT_EQ(run_in_child([signal] {
                install_signal_handlers();
                raise(signal);
                return stop_requested().value_or(kBodyFailed);
              }),
              signal);
  }
}

TEST(Signal, TheFirstOfSeveralSignalsIsTheOneReported) {
  EXPECT_EQ(run_in_child([] {
              set_signal_clock(hand_ns);
              install_signal_handlers();
              raise(SIGUSR1);
              raise(SIGTERM);
              g_hand_ns += kSameRequestNs;  // the last moment that counts as the same request
              raise(SIGINT);
              return stop_requested().value_or(kBodyFailed);
            }),
            SIGUSR1);
}

// Sends a process one signal and, too late to be the same request, another. Returns its exit code, or the remembered
// signal.
int after_two(int first, int second) {
  return run_in_child([first, second] {
    set_signal_clock(hand_ns);
    install_signal_handlers();
    raise(first);
    g_hand_ns += kSameRequestNs + 1;
    raise(second);
    return stop_requested().value_or(kBodyFailed);
  });
}

TEST(Signal, SecondTermOrIntExitsWith128PlusSignal) {
  for (const int second : {SIGTERM, SIGINT}) EXPECT_EQ(after_two(SIGUSR1, second), 128 + second);
}

TEST(Signal, SecondUsr1HangupOrProcessorLimitDoesNotEndTheProcess) {
  for (const int signal : {SIGUSR1, SIGHUP, SIGXCPU}) EXPECT_EQ(after_two(signal, signal), signal);
}

TEST(Signal, AHangupThatNohupIgnoresStaysIgnored) {
  EXPECT_EQ(run_in_child([] {
              signal(SIGHUP, SIG_IGN);
              install_signal_handlers();
              raise(SIGHUP);
              return stop_requested() ? kBodyFailed : 0;
            }),
            0);
}

TEST(Signal, TheFirstIsAnsweredAtOnceAndOnce) {
  EXPECT_EQ(run_in_child([] {
              int ends[2];
              if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0) return kBodyFailed;
              set_signal_clock(hand_ns);
              install_signal_handlers();
              remember_signals(": stopping\n");
              raise(SIGINT);
              raise(SIGTERM);  // the same request
              char text[100] = "";
              const auto size = read(ends[0], text, sizeof(text) - 1);
              return size > 0 && std::string(text) == "titan-train: SIGINT: stopping\n" ? 0 : kBodyFailed;
            }),
            0);
}

TEST(Signal, BrokenPipeIsAnErrorCodeNotTheEnd) {
  EXPECT_EQ(run_in_child([] {
              install_signal_handlers();
              int ends[2];
              if (pipe(ends) != 0 || close(ends[0]) != 0) return kBodyFailed;
              const auto written = write(ends[1], "x", 1);
              return written == -1 && errno == EPIPE ? 0 : kBodyFailed;
            }),
            0);
}

TEST(Signal, AFileThatIsTooLargeIsAnErrorCodeNotTheEnd) {
  EXPECT_EQ(run_in_child([] {
              install_signal_handlers();
              std::FILE* file = std::tmpfile();
              const rlimit limit{.rlim_cur = 1, .rlim_max = 1};
              if (!file || setrlimit(RLIMIT_FSIZE, &limit) != 0) return kBodyFailed;
              if (write(fileno(file), "x", 1) != 1) return kBodyFailed;
              const auto written = write(fileno(file), "x", 1);
              return written == -1 && errno == EFBIG ? 0 : kBodyFailed;
            }),
            0);
}

// Waits until a single-threaded process sleeps in a system call (or is gone).
void wait_until_asleep(pid_t pid) {
  const auto sleeps = [pid] {
    std::stringstream stat;
    stat << std::ifstream("/proc/" + std::to_string(pid) + "/stat").rdbuf();
    return stat.str().find(") R ") == std::string::npos;
  };
  test::wait_until(sleeps, "a process that sleeps");
}

int g_handled[2];  // pipe that the handler writes to when it reads the clock
std::int64_t tell_of_the_handler() { return write(g_handled[1], "h", 1); }

TEST(Signal, InterruptedReadIsRestarted) {
  EXPECT_EQ(run_in_child([] {
              set_signal_clock(tell_of_the_handler);
              install_signal_handlers();
              int ends[2];
              if (pipe(ends) != 0 || pipe(g_handled) != 0) return kBodyFailed;
              const pid_t parent = getpid();
              const pid_t helper = fork();
              if (helper == 0) {
                char byte = 0;
                wait_until_asleep(parent);  // in its read
                kill(parent, SIGTERM);
                if (read(g_handled[0], &byte, 1) != 1) _exit(1);
                wait_until_asleep(parent);  // in its read again
                _exit(write(ends[1], "x", 1) == 1 ? 0 : 1);
              }
              close(ends[1]);
              char byte = 0;
              const auto got = read(ends[0], &byte, 1);
              return got == 1 && stop_requested() == SIGTERM ? 0 : kBodyFailed;
            }),
            0);
}

TEST(Signal, Names) {
  EXPECT_EQ(signal_name(SIGTERM), "SIGTERM");
  EXPECT_EQ(signal_name(SIGUSR1), "SIGUSR1");
  EXPECT_EQ(signal_name(4711), "signal 4711");
}

}  // namespace
}  // namespace titan
