// A request to stop that arrives as a signal. The handlers only set a flag; the train loop polls it between steps.
#pragma once

#include <optional>
#include <string>

namespace titan {

// From here on the first SIGTERM, SIGINT or SIGUSR1 is remembered (stop_requested()) instead of ending the process, and
// a later SIGTERM or SIGINT ends it at once with exit code 128 + signal, without destructors. A SIGUSR1 never ends it.
// Signals within 0.2 s of the first count as the same request: a scheduler and a launcher often both deliver one.
// SIGPIPE is ignored: a write to a vanished reader fails with EPIPE instead of ending the process; children that the
// process starts inherit that. Interrupted system calls are restarted. Calling it again changes nothing.
// Throws std::system_error.
void install_signal_handlers();

// The first signal that asked to stop. Cheap, callable from any thread.
std::optional<int> stop_requested();

// For tests: where the handlers take the time from, in nanoseconds. They call it, so it may do what a handler may.
void set_signal_clock(std::int64_t (*now_ns)());

// "SIGTERM"; "signal 99" for a number without a name.
std::string signal_name(int signal);

}  // namespace titan
