// Signals change the state of a whole process, so each case runs in a child process of its own (fork before any
// thread).
#include "base/signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <thread>

namespace titan {
namespace {

constexpr int kBodyFailed = 99;

// Runs `body` in a child; its exit code, or minus the signal that ended it.
int run_in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

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
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
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
              install_signal_handlers();
              raise(SIGUSR1);
              raise(SIGTERM);  // within the window of one request
              return stop_requested().value_or(kBodyFailed);
            }),
            SIGUSR1);
}

TEST(Signal, SecondTermOrIntExitsWith128PlusSignal) {
  for (const int second : {SIGTERM, SIGINT}) {
    EXPECT_EQ(run_in_child([second] {
                install_signal_handlers();
                raise(SIGUSR1);
                sleep_ms(300);
                raise(second);
                return kBodyFailed;
              }),
              128 + second);
  }
}

TEST(Signal, SecondUsr1DoesNotEndTheProcess) {
  EXPECT_EQ(run_in_child([] {
              install_signal_handlers();
              raise(SIGUSR1);
              sleep_ms(300);
              raise(SIGUSR1);
              return stop_requested().value_or(kBodyFailed);
            }),
            SIGUSR1);
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

TEST(Signal, InterruptedReadIsRestarted) {
  EXPECT_EQ(run_in_child([] {
              install_signal_handlers();
              int ends[2];
              if (pipe(ends) != 0) return kBodyFailed;
              const pid_t parent = getpid();
              const pid_t helper = fork();
              if (helper == 0) {
                sleep_ms(100);
                kill(parent, SIGTERM);
                sleep_ms(50);
                _exit(write(ends[1], "x", 1) == 1 ? 0 : 1);
              }
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
