// Captures the call stacks of this process's threads as addresses, and names the functions afterwards.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace titan {

// Return addresses, the innermost call first.
struct Stack {
  static constexpr int kMostFrames = 64;
  std::array<void*, kMostFrames> frames{};
  int size = 0;
};

// Captures the calling thread's stack, including this call. Allocates only on the first call; later
// calls are allowed in a signal handler (backtrace(3)).
Stack capture_stack();

// Returns one line per frame: "  #3 titan::train::Trainer::fetch() + 0x1c (libtitan_engine.so + 0x4f2a10)".
// Functions that a library does not export have no name; `addr2line -Cfe LIBRARY OFFSET` gives it, with the line.
std::string to_text(const Stack& stack);

struct ThreadStack {
  pid_t tid;
  std::string name;            // as top(1) shows it
  std::optional<Stack> stack;  // nullopt if the thread did not answer in time: it blocks signals, or hangs in an
                               // uninterruptible system call
};

// Captures all threads of this process except the calling one, in the order of their ids, at most `kMostThreads`;
// waits up to `patience` for each. Interrupts them briefly with a signal: a system call in progress is restarted, or
// fails with EINTR if the system does not restart it (poll, futex). Safe from several threads; captures one at a time.
inline constexpr int kMostThreads = 256;
std::vector<ThreadStack> capture_thread_stacks(std::chrono::milliseconds patience = std::chrono::milliseconds(500));

}  // namespace titan
