#include "base/signal.h"

#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <system_error>

namespace titan {
namespace {

constexpr std::int64_t kSameRequestNs = 200'000'000;

// A handler may touch lock-free atomics only.
std::atomic<int> g_signal{0};
std::atomic<std::int64_t> g_first_ns{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

using Nanoseconds = std::int64_t (*)();
std::atomic<Nanoseconds> g_clock{nullptr};  // a test's
static_assert(std::atomic<Nanoseconds>::is_always_lock_free);

std::int64_t now_ns() {
  if (const auto clock = g_clock.load()) return clock();
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);  // async-signal-safe, as is write()
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

void on_signal(int signal) {
  const int saved_errno = errno;
  int none = 0;
  if (g_signal.compare_exchange_strong(none, signal)) {
    g_first_ns.store(now_ns());
  } else if (const auto first = g_first_ns.load();
             signal != SIGUSR1 && first != 0 && now_ns() - first > kSameRequestNs) {
    constexpr std::string_view kMessage = "titan-train: asked to stop again; exiting now, without saving\n";
    [[maybe_unused]] const auto ignored = ::write(STDERR_FILENO, kMessage.data(), kMessage.size());
    ::_exit(128 + signal);
  }
  errno = saved_errno;
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
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) set_handler(signal, on_signal);
  set_handler(SIGPIPE, SIG_IGN);
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
