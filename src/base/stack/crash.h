// What a process says when a fatal signal ends it: the signal, its rank and step, and the stack of the thread.
#pragma once

#include <optional>

namespace titan {

// From here on SIGSEGV, SIGABRT, SIGBUS, SIGFPE and SIGILL write who they end and where to standard error, and then end
// the process as they would have without it; so does an exception that nobody catches, with its message first. Handlers
// that are there already (a sanitizer's, a debugger's) stay. The handlers allocate nothing and take no lock of this
// program. `rank`: of a process that is one of several; -1 for one that is alone. Calling it again changes `rank`.
void install_crash_handlers(int rank);

// From here on there is a thread that tells the other ranks of a crash: a thread that crashes waits for it, for five
// seconds at most, before the process ends. False: there is none any more.
void expect_crash_teller(bool is_there);
// The fatal signal that is about to end this process. Asked by that thread alone, which does not wait for itself where
// it is the one that crashes.
std::optional<int> crash_under_way();
// The other ranks know.
void crash_is_told();

}  // namespace titan
