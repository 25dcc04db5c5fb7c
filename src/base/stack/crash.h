// Reports a fatal signal on standard error: the signal, the rank and step, and the stack of the thread.
#pragma once

namespace titan {

// Installs handlers: SIGSEGV, SIGABRT, SIGBUS, SIGFPE and SIGILL write the rank, step and stack to standard error,
// and then end the process as they would have without a handler; so does an uncaught exception, with its message
// first. Other ranks are told before (base/process/last_word.h). Handlers that are already there (a sanitizer's, a
// debugger's) stay. The handlers allocate nothing and take no lock of this program. `rank`: -1 if the process is not
// one of several. Calling it again changes `rank`.
void install_crash_handlers(int rank);

}  // namespace titan
