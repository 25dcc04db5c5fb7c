// Handles signals that request a stop. The handlers only set a flag; the train loop polls it between steps.
#pragma once

#include <signal.h>

#include <optional>
#include <string>

namespace titan {

// Installs the handlers. From now on the first SIGTERM, SIGINT, SIGUSR1, SIGHUP or SIGXCPU is recorded
// (stop_requested()) instead of ending the process, and a later SIGTERM or SIGINT ends it at once with
// exit code 128 + signal, without destructors, once the other ranks have been told (last_word.h). SIGUSR1
// never ends it, nor does a SIGHUP or SIGXCPU after another signal: a closing terminal sends several, and a
// process beyond its limit of processor time (ulimit -St) gets one every second. A SIGHUP that was ignored, as
// under nohup, stays ignored. Signals within 0.2 s of the first count as the same request: a scheduler and a
// launcher often both deliver one. SIGPIPE and SIGXFSZ are ignored, also in child processes: a write to a
// vanished reader fails with EPIPE, and one beyond the limit of a file's size (ulimit -f) with EFBIG, instead
// of ending the process. Interrupted system calls are restarted. Calling it again changes nothing.
// Delivers the signals that HeldSignals blocked. Throws std::system_error.
void install_signal_handlers();

// Blocks SIGTERM, SIGINT, SIGUSR1, SIGHUP and SIGXCPU while it lives, here and in processes that are started meanwhile.
// Those receive them when they install their handlers; in between, a signal would be lost or end them silently.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  sigset_t before_;
};

// Until remember_signals(), the first of these signals except SIGUSR1 also ends the process at once: for waits that
// nothing interrupts and that have nothing to save. `message` is written to standard error and must stay alive.
void end_at_once_on_signal(const char* message);
// `answer` is written to standard error after the name of the first signal, as soon as it arrives;
// "" for silence. Must stay alive.
void remember_signals(const char* answer);

// Returns the first signal that requested a stop. Cheap, callable from any thread.
std::optional<int> stop_requested();

// For tests: sets the clock of the handlers, in nanoseconds. It must be async-signal-safe.
void set_signal_clock(std::int64_t (*now_ns)());

// Returns "SIGTERM", or "signal 99" for a number without a name.
std::string signal_name(int signal);

}  // namespace titan
