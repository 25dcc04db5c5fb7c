#include "base/process/ticker.h"

#include <utility>

namespace titan {

Ticker::Ticker(std::chrono::milliseconds period, std::function<void()> tick)
    : thread_([this, period, tick = std::move(tick)] {
        std::unique_lock lock(mutex_);
        while (!ends_.wait_for(lock, period, [this] { return is_over_; })) tick();
      }) {}

Ticker::~Ticker() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  ends_.notify_all();
  thread_.join();
}

}  // namespace titan
