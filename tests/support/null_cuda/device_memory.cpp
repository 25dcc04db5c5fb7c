#include "tests/support/null_cuda/device_memory.h"

#include <sys/mman.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>

#include "tests/support/null_cuda/settings.h"
#include "tests/support/null_cuda/trace.h"

namespace titan_null {
namespace {

constexpr std::size_t kPage = 4096;

struct Memory {
  std::mutex mutex;
  std::map<std::uintptr_t, Place> places;  // by first address
  std::array<std::size_t, 64> used{};      // bytes, by device
  long num_allocations = 0;
};

Memory& memory() {
  static auto& all = *new Memory;
  return all;
}

std::uintptr_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

std::size_t pages(std::size_t size) { return (size + kPage - 1) / kPage * kPage; }

void* map_pages(std::size_t size) {
  void* const found =
      ::mmap(nullptr, pages(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return found == MAP_FAILED ? nullptr : found;
}

}  // namespace

bool take(int device, std::size_t size) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  auto& used = all.used.at(static_cast<std::size_t>(device));
  const bool is_refused = is_faulty("out_of_memory", ++all.num_allocations);
  if (is_refused || size > settings().memory - used) return false;
  used += size;
  note_memory(device, used);
  return true;
}

void give_back(int device, std::size_t size) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  all.used.at(static_cast<std::size_t>(device)) -= size;
}

void remember(void* begin, std::size_t size, Kind kind, int device) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  all.places[number(begin)] = {kind, device, begin, size};
}

void forget(void* begin) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  all.places.erase(number(begin));
}

void* allocate_on_device(int device, std::size_t size) {
  if (!take(device, size)) return nullptr;
  void* const found = map_pages(size);
  if (found)
    remember(found, size, Kind::kDevice, device);
  else
    give_back(device, size);
  return found;
}

void* allocate_pinned(std::size_t size) {
  void* const found = map_pages(size);
  if (found) remember(found, size, Kind::kPinned, 0);
  return found;
}

bool release(void* address) {
  const Place place = place_of(address);
  if (place.kind == Kind::kNone || place.begin != address) return false;
  forget(address);
  if (place.kind == Kind::kDevice) give_back(place.device, place.size);
  ::munmap(address, pages(place.size));
  return true;
}

Place place_of(const void* address) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  auto after = all.places.upper_bound(number(address));
  if (after == all.places.begin()) return {};
  const Place& place = std::prev(after)->second;
  return number(address) < number(place.begin) + place.size ? place : Place{};
}

std::size_t used_on(int device) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  return all.used.at(static_cast<std::size_t>(device));
}

void fill(void* begin, int value, std::size_t size) {
  const std::uintptr_t first = pages(number(begin)), last = (number(begin) + size) / kPage * kPage;
  const bool has_pages = value == 0 && last > first + 64 * kPage && place_of(begin).kind == Kind::kDevice;
  if (!has_pages || ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED) != 0) {
    std::memset(begin, value, size);
    return;
  }
  std::memset(begin, value, first - number(begin));
  std::memset(reinterpret_cast<void*>(last), value, number(begin) + size - last);
}

}  // namespace titan_null
