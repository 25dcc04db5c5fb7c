#include "base/stack/stack.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

namespace titan {
namespace {

// Demangled template names can be as long as a page.
constexpr std::size_t kMostOfName = 200;

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                         &std::free);
  std::string whole = status == 0 && text ? text.get() : name;
  if (whole.size() > kMostOfName) whole = whole.substr(0, kMostOfName - 3) + "...";
  return whole;
}

std::string hex(std::uintptr_t number) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%jx", static_cast<std::uintmax_t>(number));
  return text;
}

std::string name_of_frame(void* address) {
  Dl_info info{};
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (::dladdr(address, &info) == 0 || !info.dli_fname) return hex(at);
  std::string text;
  if (info.dli_sname)
    text = demangled(info.dli_sname) + " + " + hex(at - reinterpret_cast<std::uintptr_t>(info.dli_saddr)) + " ";
  const auto offset = at - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  return text + "(" + std::filesystem::path(info.dli_fname).filename().string() + " + " + hex(offset) + ")";
}

// A request to one thread. It is never freed, because the thread may answer after the requester has given up.
struct Request {
  std::atomic<pid_t> tid = 0;
  std::atomic<bool> is_done = false;
  Stack stack;
};
std::atomic<Request*> g_request = nullptr;

void answer_request(int /*signal*/) {
  const int saved = errno;
  // The thread whose id it claims answers the request; an abandoned request has id 0.
  Request* request = g_request.load();
  pid_t self = ::gettid();
  if (request && request->tid.compare_exchange_strong(self, 0)) {
    request->stack = capture_stack();
    request->is_done.store(true);
  }
  errno = saved;
}

int stack_signal() { return SIGRTMIN + 6; }

void install_stack_signal() {
  capture_stack();  // loads what it needs
  struct sigaction action {};
  action.sa_handler = answer_request;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  ::sigaction(stack_signal(), &action, nullptr);
}

// True if the request is done in time.
bool is_done_within(const Request& request, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!request.is_done && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return request.is_done;
}

std::optional<Stack> ask_thread(pid_t tid, std::chrono::milliseconds patience) {
  static Request* request = new Request;
  request->is_done = false;
  request->tid = tid;
  g_request = request;
  if (::syscall(SYS_tgkill, ::getpid(), tid, stack_signal()) != 0) return std::nullopt;
  pid_t expected = tid;
  if (!is_done_within(*request, patience) && request->tid.compare_exchange_strong(expected, 0)) return std::nullopt;
  if (is_done_within(*request, patience)) return request->stack;
  request = new Request;  // the thread hangs while it answers and keeps the old request
  return std::nullopt;
}

std::vector<pid_t> other_threads() {
  std::vector<pid_t> tids;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", error))
    tids.push_back(static_cast<pid_t>(std::atoi(entry.path().filename().c_str())));
  std::erase(tids, ::gettid());
  std::ranges::sort(tids);
  if (tids.size() > kMostThreads) tids.resize(kMostThreads);
  return tids;
}

std::string name_of_thread(pid_t tid) {
  std::string name;
  std::getline(std::ifstream("/proc/self/task/" + std::to_string(tid) + "/comm"), name);
  return name;
}

}  // namespace

Stack capture_stack() {
  Stack stack;
  stack.size = ::backtrace(stack.frames.data(), Stack::kMostFrames);
  return stack;
}

std::string to_text(const Stack& stack) {
  std::string text;
  for (int i = 0; i < stack.size; ++i) text += "  #" + std::to_string(i) + " " + name_of_frame(stack.frames[i]) + "\n";
  return text;
}

std::vector<ThreadStack> capture_thread_stacks(std::chrono::milliseconds patience) {
  static std::mutex mutex;
  const std::lock_guard one_at_a_time(mutex);
  install_stack_signal();
  std::vector<ThreadStack> stacks;
  for (const pid_t tid : other_threads()) stacks.push_back({tid, name_of_thread(tid), ask_thread(tid, patience)});
  return stacks;
}

}  // namespace titan
