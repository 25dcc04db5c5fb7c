// A request to stop that arrives as a signal. The handlers only set a flag; the train loop polls it between steps.
#pragma once

#include <signal.h>

#include <optional>
#include <string>

namespace titan {

// From here on the first SIGTERM, SIGINT, SIGUSR1 or SIGHUP is remembered (stop_requested()) instead of ending the
// process, and a later SIGTERM or SIGINT ends it at once with exit code 128 + signal, without destructors. A SIGUSR1
// never ends it, nor does a SIGHUP that follows another signal: a terminal that goes away sends several. A SIGHUP that
// was ignored, as nohup has it, stays so.
// Signals within 0.2 s of the first count as the same request: a scheduler and a launcher often both deliver one.
// SIGPIPE is ignored: a write to a vanished reader fails with EPIPE instead of ending the process; children that the
// process starts inherit that. Interrupted system calls are restarted. Calling it again changes nothing.
// Lets through what HeldSignals held back. Throws std::system_error.
void install_signal_handlers();

// While one lives, SIGTERM, SIGINT, SIGUSR1 and SIGHUP wait, here and in processes that are started meanwhile: those
// get them when they install their handlers, and not in between, where a signal would be lost or end them without a
// word.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  sigset_t before_;
};

// From here on, and until remember_signals(), the first of them but SIGUSR1 ends the process at once as well: for waits
// that nothing wakes and that hold nothing to save. `message` is written to standard error and must live on.
void end_at_once_on_signal(const char* message);
// `answer`: written to standard error after the name of the first signal, as soon as it comes; "" for silence. Must
// live on.
void remember_signals(const char* answer);

// The first signal that asked to stop. Cheap, callable from any thread.
std::optional<int> stop_requested();

// For tests: where the handlers take the time from, in nanoseconds. They call it, so it may do what a handler may.
void set_signal_clock(std::int64_t (*now_ns)());

// "SIGTERM"; "signal 99" for a number without a name.
std::string signal_name(int signal);

}  // namespace titan
