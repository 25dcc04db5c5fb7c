#include "tests/unit/checkpoint/counted_memory.h"

#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

// Counts for the full process from its start: memory freed during a measurement may be older than it.
std::atomic<std::int64_t> g_live{0};
std::atomic<std::int64_t> g_peak{0};
std::int64_t g_start = 0;
c10::Allocator* g_tensors = nullptr;  // the previous allocator

void count(std::int64_t bytes) {
  const std::int64_t live = g_live += bytes;
  std::int64_t peak = g_peak;
  while (live > peak && !g_peak.compare_exchange_weak(peak, live)) {
  }
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    auto* held = new Held{g_tensors->allocate(size), static_cast<std::int64_t>(size)};
    count(held->bytes);
    return {held->data.get(), held, release, held->data.device()};
  }
  void copy_data(void* to, const void* from, std::size_t size) const override { default_copy_data(to, from, size); }

 private:
  struct Held {
    c10::DataPtr data;
    std::int64_t bytes;
  };
  static void release(void* context) {
    auto* held = static_cast<Held*>(context);
    count(-held->bytes);
    delete held;
  }
};

CountingAllocator g_counting;

}  // namespace

// A sanitizer has its own nothrow form, whose memory free() would refuse.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  void* const block = std::malloc(size == 0 ? 1 : size);
  if (block != nullptr) count(static_cast<std::int64_t>(malloc_usable_size(block)));
  return block;
}

void* operator new(std::size_t size) {
  if (void* const block = operator new(size, std::nothrow)) return block;
  throw std::bad_alloc();
}

void operator delete(void* block) noexcept {
  count(-static_cast<std::int64_t>(malloc_usable_size(block)));
  std::free(block);
}

void operator delete(void* block, std::size_t) noexcept { ::operator delete(block); }

namespace titan::test {

CountedMemory::CountedMemory() {
  g_tensors = c10::GetCPUAllocator();
  c10::SetCPUAllocator(&g_counting);
  g_start = g_live;
  g_peak = g_start;
}

// Tensors that outlive this object are still released by the counting allocator.
CountedMemory::~CountedMemory() { c10::SetCPUAllocator(g_tensors); }

std::int64_t CountedMemory::peak_bytes() const { return g_peak - g_start; }

}  // namespace titan::test
