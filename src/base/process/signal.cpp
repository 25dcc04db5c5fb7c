#include "base/process/signal.h"

#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <system_error>

#include "base/process/last_word.h"

namespace titan {
namespace {

constexpr std::int64_t kSameRequestNs = 200'000'000;
constexpr int kRequests[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGXCPU};

// The others end the process if they come again.
bool may_come_again(int signal) { return signal == SIGUSR1 || signal == SIGHUP || signal == SIGXCPU; }

// A handler may touch lock-free atomics only.
std::atomic<int> g_signal{0};
std::atomic<std::int64_t> g_first_ns{0};
std::atomic<const char*> g_at_once{nullptr};  // message of end_at_once_on_signal(); null: signals are recorded
std::atomic<const char*> g_answer{""};        // text of remember_signals()
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free &&
              std::atomic<const char*>::is_always_lock_free);

using Nanoseconds = std::int64_t (*)();
std::atomic<Nanoseconds> g_clock{nullptr};  // set by tests
static_assert(std::atomic<Nanoseconds>::is_always_lock_free);

std::int64_t now_ns() {
  if (const auto clock = g_clock.load()) return clock();
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);  // async-signal-safe, as is write()
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

void say(const char* message) {
  [[maybe_unused]] const auto ignored = ::write(STDERR_FILENO, message, ::strlen(message));
}

[[noreturn]] void end_now(int signal, const char* message) {
  say(message);
  let_it_be_told({Ending::Cause::kAsked, signal});
  ::_exit(128 + signal);
}

// One write, so that other output does not interleave.
void answer(int signal) {
  const char* text = g_answer.load();
  const char* name = ::sigabbrev_np(signal);  // a constant
  if (*text == '\0' || !name) return;
  char line[200] = "titan-train: SIG";
  ::strncat(line, name, sizeof(line) - ::strlen(line) - 1);
  ::strncat(line, text, sizeof(line) - ::strlen(line) - 1);
  say(line);
}

void on_signal(int signal) {
  const int saved_errno = errno;
  if (const char* message = g_at_once.load(); message && signal != SIGUSR1) end_now(signal, message);
  int none = 0;
  if (g_signal.compare_exchange_strong(none, signal)) {
    g_first_ns.store(now_ns());
    answer(signal);
  } else if (const auto first = g_first_ns.load();
             !may_come_again(signal) && first != 0 && now_ns() - first > kSameRequestNs) {
    end_now(signal, "titan-train: asked to stop again; exiting now, without saving\n");
  }
  errno = saved_errno;
}

sigset_t request_set() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kRequests) sigaddset(&set, signal);
  return set;
}

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

void set_handler(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  if (::sigaction(signal, &action, nullptr) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot install the handler of " + signal_name(signal));
  }
}

}  // namespace

void install_signal_handlers() {
  for (const int signal : kRequests)
    if (signal != SIGHUP || !is_ignored(SIGHUP)) set_handler(signal, on_signal);
  for (const int signal : {SIGPIPE, SIGXFSZ}) set_handler(signal, SIG_IGN);
  const sigset_t requests = request_set();
  ::pthread_sigmask(SIG_UNBLOCK, &requests, nullptr);
}

HeldSignals::HeldSignals() {
  const sigset_t requests = request_set();
  ::pthread_sigmask(SIG_BLOCK, &requests, &before_);
}

HeldSignals::~HeldSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

void end_at_once_on_signal(const char* message) {
  g_at_once = message;
  if (const auto signal = stop_requested(); signal && *signal != SIGUSR1) end_now(*signal, message);
}

void remember_signals(const char* answer_text) {
  g_answer = answer_text;
  g_at_once = nullptr;
}

std::optional<int> stop_requested() {
  const int signal = g_signal.load(std::memory_order_relaxed);
  return signal == 0 ? std::nullopt : std::optional(signal);
}

void set_signal_clock(std::int64_t (*now_ns)()) { g_clock = now_ns; }

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? "SIG" + std::string(name) : "signal " + std::to_string(signal);
}

}  // namespace titan
