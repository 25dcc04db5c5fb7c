#include "tests/support/count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::int64_t> g_made = 0, g_freed = 0;

}  // namespace

// The array forms call these. So would the nothrow form, but a sanitizer has its own, whose memory free() would refuse.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++g_made;
  return std::malloc(size > 0 ? size : 1);
}
void* operator new(std::size_t size) {
  if (void* const memory = operator new(size, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  if (memory != nullptr) ++g_freed;
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }

titan::test::Allocations titan::test::allocations() { return {g_made, g_freed}; }
