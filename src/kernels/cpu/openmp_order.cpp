// This GOMP_parallel tells ThreadSanitizer the order that libgomp, which is not instrumented, gives to a parallel
// region: its threads see what the caller wrote before, and the caller sees what they wrote. Threads of one region stay
// unordered to each other. It takes the place of libgomp's, also for torch's own regions, in builds for that sanitizer
// and in no others.
#include <dlfcn.h>

extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void GOMP_parallel(void (*function)(void*), void* data, unsigned num_threads, unsigned flags);
}

namespace {

struct Region {
  void (*function)(void*);
  void* data;
  char begin = 0, end = 0;  // their addresses stand for the two moments
};

void run(void* argument) {
  auto* const region = static_cast<Region*>(argument);
  __tsan_acquire(&region->begin);
  region->function(region->data);
  __tsan_release(&region->end);
}

}  // namespace

void GOMP_parallel(void (*function)(void*), void* data, unsigned num_threads, unsigned flags) {
  static const auto of_libgomp = reinterpret_cast<decltype(&GOMP_parallel)>(::dlsym(RTLD_NEXT, "GOMP_parallel"));
  Region region{function, data};
  __tsan_release(&region.begin);
  of_libgomp(run, &region, num_threads, flags);
  __tsan_acquire(&region.end);
}
