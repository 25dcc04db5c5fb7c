#include "base/stack/crash.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "base/limits/system_limits.h"
#include "base/process/last_word.h"
#include "base/process/phase.h"
#include "base/process/program_name.h"
#include "base/stack/stack.h"

namespace titan {
namespace {

constexpr int kFatal[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};
constexpr std::size_t kAlternateStack = std::size_t{128} << 10;

std::atomic<int> g_crash_rank = -1;
std::atomic<bool> g_crashes = false;  // a thread is in the handler

// A line on standard error, built without heap memory.
class Line {
 public:
  Line& operator<<(std::string_view text) {
    const auto count = std::min(text.size(), text_.size() - size_ - 1);
    ::memcpy(text_.data() + size_, text.data(), count);
    size_ += count;
    return *this;
  }
  Line& operator<<(std::int64_t number) {
    return number < 0 ? *this << "-" : digits(static_cast<std::uint64_t>(number), 10);
  }
  Line& hex(std::uint64_t number) { return (*this << "0x").digits(number, 16); }
  ~Line() {
    text_[size_++] = '\n';
    [[maybe_unused]] const auto ignored = ::write(STDERR_FILENO, text_.data(), size_);
  }

 private:
  Line& digits(std::uint64_t number, std::uint64_t base) {
    std::array<char, 24> digits;
    std::size_t first = digits.size();
    do {
      digits[--first] = "0123456789abcdef"[number % base];
      number /= base;
    } while (number > 0);
    return *this << std::string_view(digits.data() + first, digits.size() - first);
  }
  std::array<char, 512> text_;
  std::size_t size_ = 0;
};

Line& start(Line& line) {
  line << program_name() << ": ";
  if (const int rank = g_crash_rank; rank >= 0) line << "rank " << rank << ": ";
  return line;
}

void say_signal(int number, const siginfo_t* info) {
  const char* name = ::sigabbrev_np(number);  // a constant
  Line line;
  start(line) << "ended by SIG" << (name ? name : "?");
  if (info && info->si_code > 0 && (number == SIGSEGV || number == SIGBUS))
    (line << " at address ").hex(reinterpret_cast<std::uintptr_t>(info->si_addr));
  if (const auto step = phase_log().step(); step > 0)
    line << " in step " << step << " (" << name_of(phase_log().current()) << ")";
  line << "; the stack of its thread " << std::int64_t{::gettid()}
       << ", innermost call first (c++filt reads the names, addr2line -Cfe FILE OFFSET the lines):";
}

void say_stack() {
  const Stack stack = capture_stack();
  for (int i = 0; i < stack.size; ++i) {
    Dl_info info{};
    const auto at = reinterpret_cast<std::uintptr_t>(stack.frames[i]);
    Line line;
    line << "  #" << std::int64_t{i} << " ";
    if (::dladdr(stack.frames[i], &info) == 0 || !info.dli_fname) {
      line.hex(at);
      continue;
    }
    if (info.dli_sname) (line << std::string_view(info.dli_sname).substr(0, 300) << " ");
    ((line << "(" << std::string_view(info.dli_fname) << " ")
         .hex(at - reinterpret_cast<std::uintptr_t>(info.dli_fbase)))
        << ")";
  }
}

void end_by(int number) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  sigemptyset(&action.sa_mask);
  ::sigaction(number, &action, nullptr);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::syscall(SYS_tgkill, ::getpid(), ::gettid(), number);
}

void on_fatal_signal(int number, siginfo_t* info, void* /*context*/) {
  if (g_crashes.exchange(true)) {
    for (;;) ::pause();  // another thread was first and ends the process
  }
  say_signal(number, info);
  say_stack();
  let_it_be_told({Ending::Cause::kCrash, number});
  end_by(number);
}

[[noreturn]] void on_terminate() {
  if (const auto failure = std::current_exception()) {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      const std::string what = message_of_error(error);
      Line line;
      start(line) << "an exception that nobody caught: " << std::string_view(what).substr(0, what.find('\n'));
    } catch (...) {
      Line line;
      start(line) << "an exception that nobody caught";
    }
  }
  ::abort();
}

bool is_default(int number) {
  struct sigaction action {};
  return ::sigaction(number, nullptr, &action) == 0 && !(action.sa_flags & SA_SIGINFO) && action.sa_handler == SIG_DFL;
}

// The handler needs its own stack if the thread's stack has overflowed. Applies to the calling
// thread, the one that trains.
void use_alternate_stack() {
  static std::array<char, kAlternateStack> memory;
  stack_t stack{};
  if (::sigaltstack(nullptr, &stack) != 0 || !(stack.ss_flags & SS_DISABLE)) return;  // one exists already
  stack.ss_sp = memory.data();
  stack.ss_size = memory.size();
  stack.ss_flags = 0;
  ::sigaltstack(&stack, nullptr);
}

}  // namespace

void install_crash_handlers(int rank) {
  g_crash_rank = rank;
  capture_stack();  // loads what it needs now, not in a handler
  phase_log();
  use_alternate_stack();
  for (const int number : kFatal) {
    if (!is_default(number)) continue;
    struct sigaction action {};
    action.sa_sigaction = on_fatal_signal;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigaction(number, &action, nullptr);
  }
  if (std::get_terminate() != on_terminate) std::set_terminate(on_terminate);
}

}  // namespace titan
