#include "base/stack/stack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/process/last_word.h"
#include "base/process/phase.h"
#include "base/stack/crash.h"
#include "tests/support/guard.h"

namespace titan {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

pid_t this_tid() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

// A thread with its own name that waits until this object is destroyed.
class Waiter {
 public:
  explicit Waiter(bool blocks_signals) : thread_([this, blocks_signals] { wait(blocks_signals); }) {
    test::wait_until([this] { return tid_ != 0; }, "the thread");
  }
  ~Waiter() {
    is_over_ = true;
    is_over_.notify_all();
    thread_.join();
  }
  pid_t tid() const { return tid_; }

 private:
  void wait(bool blocks_signals) {
    ::prctl(PR_SET_NAME, "waits_in_test");
    sigset_t all;
    sigfillset(&all);
    if (blocks_signals) ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    tid_ = this_tid();
    is_over_.wait(false);
  }
  std::atomic<pid_t> tid_ = 0;
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

const ThreadStack* find(const std::vector<ThreadStack>& stacks, pid_t tid) {
  for (const auto& stack : stacks)
    if (stack.tid == tid) return &stack;
  return nullptr;
}

TEST(Stack, NamesItsFramesByFileAndOffset) {
  const std::string text = to_text(capture_stack());
  EXPECT_THAT(text, ContainsRegex("#0 .*base_test \\+ 0x[0-9a-f]+\\)\n"));
  EXPECT_THAT(text, ContainsRegex("__libc_start_main.* \\(libc\\.so\\.6 \\+ 0x[0-9a-f]+\\)\n"));
}

TEST(ThreadStacks, AreThoseOfTheOtherThreads) {
  const Waiter waiter(/*blocks_signals=*/false);
  // The time limit is only a guard: the thread answers sooner.
  const auto stacks = capture_thread_stacks(test::guard(30));
  EXPECT_FALSE(find(stacks, this_tid()));
  const auto* found = find(stacks, waiter.tid());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->name, "waits_in_test");
  ASSERT_TRUE(found->stack);
  EXPECT_THAT(to_text(*found->stack), HasSubstr("libc.so.6"));
}

TEST(ThreadStacks, SayWhichThreadDoesNotAnswer) {
  const Waiter deaf(/*blocks_signals=*/true);
  const auto stacks = capture_thread_stacks(std::chrono::milliseconds(20));
  const auto* found = find(stacks, deaf.tid());
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->stack);
  // A later capture is not confused by the answer that was never given.
  EXPECT_FALSE(find(capture_thread_stacks(std::chrono::milliseconds(20)), deaf.tid())->stack);
}

struct Ended {
  int status;
  std::string said;
};

// Runs `body` in a child process and captures its stderr.
Ended run_apart(const std::function<void()>& body) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    body();
    ::_exit(0);
  }
  ::close(ends[1]);
  Ended ended{};
  char text[4096];
  for (ssize_t count; (count = ::read(ends[0], text, sizeof(text))) > 0;)
    ended.said.append(text, static_cast<std::size_t>(count));
  ::close(ends[0]);
  EXPECT_EQ(::waitpid(child, &ended.status, 0), child);
  return ended;
}

void end_by(int signal) { ::raise(signal); }

TEST(Crash, SaysRankStepPhaseAndStackAndEndsByTheSameSignal) {
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) {
    const auto ended = run_apart([signal] {
      install_crash_handlers(3);
      phase_log().set_step(12);
      const PhaseScope phase(Phase::kData);
      end_by(signal);
    });
    ASSERT_TRUE(WIFSIGNALED(ended.status)) << ended.said;
    EXPECT_EQ(WTERMSIG(ended.status), signal);
    const std::string name = ::sigabbrev_np(signal);
    EXPECT_THAT(ended.said, HasSubstr(": rank 3: ended by SIG" + name + " in step 12 (data); the stack of"));
    EXPECT_THAT(ended.said, ContainsRegex("  #[0-9]+ .*base_test 0x[0-9a-f]+\\)\n"));
  }
}

TEST(Crash, SaysTheAddressThatWasTouched) {
  const auto ended = run_apart([] {
    install_crash_handlers(-1);
    volatile auto* nowhere = reinterpret_cast<int*>(std::uintptr_t{0x10});
    *nowhere = 1;
  });
  EXPECT_THAT(ended.said, HasSubstr(": ended by SIGSEGV at address 0x10; the stack"));
  EXPECT_TRUE(WIFSIGNALED(ended.status));
}

// Overflows the stack, which leaves no room on it for a handler.
int overflow(int depth) {
  if (depth < 0) return 0;  // never true
  volatile char block[4096];
  block[0] = static_cast<char>(depth);
  return overflow(depth + 1) + block[0];
}

TEST(Crash, HasRoomWhereTheStackHasOverflowed) {
  const auto ended = run_apart([] {
    install_crash_handlers(0);
    overflow(0);
  });
  EXPECT_THAT(ended.said, HasSubstr(": rank 0: ended by SIGSEGV"));
  EXPECT_TRUE(WIFSIGNALED(ended.status));
}

TEST(Crash, SaysWhatNobodyCaught) {
  const auto ended = run_apart([] {
    install_crash_handlers(1);
    std::thread([] { throw std::runtime_error("out of milk\nand a second line"); }).join();
  });
  ASSERT_TRUE(WIFSIGNALED(ended.status)) << ended.said;
  EXPECT_EQ(WTERMSIG(ended.status), SIGABRT);
  EXPECT_THAT(ended.said, HasSubstr(": rank 1: an exception that nobody caught: out of milk\n"));
  EXPECT_THAT(ended.said, HasSubstr(": rank 1: ended by SIGABRT"));
}

TEST(Crash, LeavesHandlersThatAreThere) {
  const auto ended = run_apart([] {
    ::signal(SIGSEGV, [](int) { ::_exit(77); });
    install_crash_handlers(1);
    end_by(SIGSEGV);
  });
  EXPECT_EQ(WEXITSTATUS(ended.status), 77);
  EXPECT_THAT(ended.said, Not(HasSubstr("ended by")));
}

TEST(Crash, WaitsForTheThreadThatTellsTheOthers) {
  const auto ended = run_apart([] {
    install_crash_handlers(1);
    expect_teller(true);
    std::thread teller([&] {
      while (!ending_to_tell()) ::usleep(1000);
      const std::string line = "told of " + std::to_string(ending_under_way()->number) + "\n";
      [[maybe_unused]] const auto ignored = ::write(STDERR_FILENO, line.data(), line.size());
      ending_is_told();
      for (;;) ::pause();
    });
    end_by(SIGSEGV);
  });
  EXPECT_THAT(ended.said, HasSubstr("told of " + std::to_string(SIGSEGV) + "\n"));
  ASSERT_TRUE(WIFSIGNALED(ended.status));
  EXPECT_EQ(WTERMSIG(ended.status), SIGSEGV);
}

}  // namespace
}  // namespace titan
