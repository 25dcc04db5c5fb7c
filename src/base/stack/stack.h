// Where threads of this process stand: their chains of calls, captured as addresses and named afterwards.
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

// Of the calling thread, this call included. Allocates nothing once it has been called; a signal handler may call it
// then (backtrace(3)).
Stack capture_stack();

// One line per frame: "  #3 titan::train::Trainer::fetch() + 0x1c (libtitan_engine.so + 0x4f2a10)". Functions that a
// library does not export have no name; `addr2line -Cfe LIBRARY OFFSET` has it, with the line.
std::string to_text(const Stack& stack);

struct ThreadStack {
  pid_t tid;
  std::string name;            // as top(1) shows it
  std::optional<Stack> stack;  // nothing where the thread did not answer in time: it blocks signals, or hangs in a call
                               // of the system that nothing interrupts
};

// All threads of this process but the calling one, the first one first, `patience` for each and at most `kMostThreads`.
// They are interrupted by a signal for a moment: a call of the system that they are in goes on, or fails with EINTR
// where the system does not go on by itself (poll, futex). One capture at a time; safe from several threads.
inline constexpr int kMostThreads = 256;
std::vector<ThreadStack> capture_thread_stacks(std::chrono::milliseconds patience = std::chrono::milliseconds(500));

}  // namespace titan
