// Lets programs run with the libstdc++ of GCC 11 (RHEL 9, Ubuntu 22.04) although GCC 12 builds them. GCC 12 gave
// std::condition_variable::wait() a new version of its symbol, GLIBCXX_3.4.30: the only symbol of the program and its
// engine that the older library does not have. The linker prefers this definition, and does not export it.
#include <pthread.h>

#include <condition_variable>
#include <mutex>

extern "C" __attribute__((visibility("hidden"))) void  // NOLINTNEXTLINE: the compiler's name of the member function
_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(std::condition_variable* condition,
                                                          std::unique_lock<std::mutex>* lock) {
  pthread_cond_wait(condition->native_handle(), lock->mutex()->native_handle());
}
