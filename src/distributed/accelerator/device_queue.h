// Tells which collectives a backend's device has not finished.
#pragma once

#include <cstdint>

namespace titan::dist {

// A backend whose collectives are queued on a device while the host goes on.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;
  // Returns how many of the collectives that were started, sends and receives left out, the device has not finished.
  // The answer may be a tenth of a second old. Any thread may call this.
  virtual std::int64_t num_unfinished() = 0;
};

}  // namespace titan::dist
