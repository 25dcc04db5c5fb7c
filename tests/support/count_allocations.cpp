#include "tests/support/count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::int64_t> g_made = 0, g_freed = 0;

}  // namespace

// The array and nothrow forms call these.
void* operator new(std::size_t size) {
  ++g_made;
  if (void* const memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  if (memory != nullptr) ++g_freed;
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }

titan::test::Allocations titan::test::allocations() { return {g_made, g_freed}; }
