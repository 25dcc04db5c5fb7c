#include "tests/support/null_cuda/observer.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <mutex>

#include "tests/support/null_cuda/settings.h"

namespace {

thread_local long work_of_thread = 0;
std::atomic<void (*)()> at_end = nullptr;

void open_observer() {
  const std::string& path = titan_null::settings().observer;
  if (path.empty() || ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return;
  std::fprintf(stderr, "null CUDA: cannot open NULL_CUDA_OBSERVER: %s\n", ::dlerror());
  ::_exit(99);
}

}  // namespace

void titan_null::note_work() {
  static std::once_flag once;
  std::call_once(once, open_observer);
  ++work_of_thread;
}

void titan_null::end_observer() {
  if (const auto function = at_end.load()) function();
}

extern "C" long titan_null_work_of_thread() { return work_of_thread; }
extern "C" void titan_null_call_at_end(void (*function)()) { at_end = function; }
