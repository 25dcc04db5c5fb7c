#pragma once

// Memory of the devices, and page-locked memory, all of it memory of the host. Pages that nobody writes cost nothing,
// so that a device may have more memory than the machine.

#include <cstddef>

namespace titan_null {

enum class Kind { kNone, kDevice, kPinned };

struct Place {
  Kind kind = Kind::kNone;
  int device = 0;
  void* begin = nullptr;
  std::size_t size = 0;
};

// Returns memory of a device; null if it has not that much, or a rule says so.
void* allocate_on_device(int device, std::size_t size);
// Returns page-locked memory.
void* allocate_pinned(std::size_t size);
// Gives back memory of either kind. False if nothing begins at the address.
bool release(void* address);

// Takes bytes of a device that have no address yet (virtual memory management). False if it has not that many.
bool take(int device, std::size_t size);
void give_back(int device, std::size_t size);

// Remembers memory that the caller has made, and forgets it.
void remember(void* begin, std::size_t size, Kind kind, int device);
void forget(void* begin);

// Returns the memory in which an address lies; Kind::kNone if it is ordinary memory of the host.
Place place_of(const void* address);
std::size_t used_on(int device);

// Writes the byte to a range; zeros give whole pages back to the host.
void fill(void* begin, int value, std::size_t size);

}  // namespace titan_null
