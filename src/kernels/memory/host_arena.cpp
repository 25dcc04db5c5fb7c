#include "kernels/memory/host_arena.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/env.h"

namespace titan::kernels {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kSmallest = std::size_t{64} << 10;  // bytes of a tensor from the arena

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

HostArena::HostArena(std::size_t capacity) {
  // Reserves addresses only. Retries with half the size on systems that count them against a limit.
  for (std::size_t size = round_up(capacity, kHugePage); size >= kHugePage; size /= 2) {
    void* range = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) continue;
    begin_ = static_cast<char*>(range);
    capacity_ = size;
    break;
  }
  if (!begin_) return;
  madvise(begin_, capacity_, MADV_HUGEPAGE);  // a hint: works without huge pages too
  free_.insert(new Block{begin_, capacity_, true, nullptr, nullptr});
}

HostArena::~HostArena() {
  for (auto* block : free_) delete block;
  for (const auto& [address, block] : in_use_) delete block;
  if (begin_) munmap(begin_, capacity_);
}

void* HostArena::allocate(std::size_t bytes) {
  const std::size_t size = round_up(std::max<std::size_t>(bytes, 1), kPage);
  const std::lock_guard lock(mutex_);
  Block wanted{nullptr, size, true, nullptr, nullptr};
  const auto found = free_.lower_bound(&wanted);
  if (found == free_.end()) return nullptr;
  Block* block = *found;
  free_.erase(found);
  give_rest_back(block, size);
  block->free = false;
  in_use_.emplace(block->begin, block);
  stats_.in_use += block->size;
  stats_.peak_in_use = std::max(stats_.peak_in_use, stats_.in_use);
  stats_.touched = std::max(stats_.touched, static_cast<std::size_t>(block->begin + block->size - begin_));
  return block->begin;
}

void HostArena::give_rest_back(Block* block, std::size_t used) {
  if (block->size == used) return;
  auto* rest = new Block{block->begin + used, block->size - used, true, block, block->next};
  if (rest->next) rest->next->previous = rest;
  block->next = rest;
  block->size = used;
  free_.insert(rest);
}

void HostArena::release(void* address) {
  const std::lock_guard lock(mutex_);
  const auto found = in_use_.find(address);
  Block* block = found->second;
  in_use_.erase(found);
  stats_.in_use -= block->size;
  block->free = true;
  if (block->previous && block->previous->free) {
    free_.erase(block->previous);
    block = join(block->previous, block);
  }
  if (block->next && block->next->free) {
    free_.erase(block->next);
    block = join(block, block->next);
  }
  free_.insert(block);
}

HostArena::Block* HostArena::join(Block* first, Block* second) {
  first->size += second->size;
  first->next = second->next;
  if (second->next) second->next->previous = first;
  delete second;
  return first;
}

HostArena::Stats HostArena::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

namespace {

constexpr std::size_t kAddresses = std::size_t{1} << 40;  // more than any host's memory

// Lives until the process ends: tensors outlive static objects.
HostArena& arena() {
  static auto* const instance = new HostArena(kAddresses);
  return *instance;
}

void release_any(void* address) {
  if (arena().owns(address)) {
    arena().release(address);
  } else {
    std::free(address);
  }
}

thread_local int outside = 0;  // number of OutsideHostArena scopes

class ArenaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, cpu};
    void* address = bytes >= kSmallest && outside == 0 ? arena().allocate(bytes) : nullptr;
    if (!address) address = c10::alloc_cpu(bytes);  // throws with a message when there is no memory
    return {address, address, &release_any, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_any; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};

bool installed = false;

}  // namespace

bool install_host_arena() {
  if (installed || get_env("TITAN_HOST_ARENA").value_or("1") == "0") return installed;
  static auto* const allocator = new ArenaAllocator;
  c10::SetCPUAllocator(allocator, /*priority=*/1);
  return installed = true;
}

OutsideHostArena::OutsideHostArena() { ++outside; }

OutsideHostArena::~OutsideHostArena() { --outside; }

HostArena::Stats host_arena_stats() { return installed ? arena().stats() : HostArena::Stats{}; }

}  // namespace titan::kernels
