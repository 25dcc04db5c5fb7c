// Reports a fatal signal on standard error: the signal, the rank and step, and the stack of the thread.
#pragma once

#include <optional>

namespace titan {

// Installs handlers: SIGSEGV, SIGABRT, SIGBUS, SIGFPE and SIGILL write the rank, step and stack to standard error,
// and then end the process as they would have without a handler; so does an uncaught exception, with its message
// first. Handlers that are already there (a sanitizer's, a debugger's) stay. The handlers allocate nothing and
// take no lock of this program. `rank`: -1 if the process is not one of several. Calling it again changes `rank`.
void install_crash_handlers(int rank);

// Registers that a thread exists that tells the other ranks of a crash; false: it has ended. A
// crashing thread waits for it, at most five seconds, before the process ends.
void expect_crash_teller(bool is_there);
// Returns the fatal signal that is about to end this process. Call only from that thread: the
// caller's id is recorded, so that the thread does not wait for itself if it crashes.
std::optional<int> crash_under_way();
// Call once the other ranks have been told.
void crash_is_told();

}  // namespace titan
