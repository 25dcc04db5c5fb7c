#include "base/threads/ticker.h"

#include <utility>

#include "base/threads/start_thread.h"

namespace titan {

Ticker::Ticker(const std::string& purpose, std::chrono::milliseconds period, std::function<void()> tick)
    : thread_(start_thread(purpose, [this, period, tick = std::move(tick)] {
        std::unique_lock lock(mutex_);
        while (!ends_.wait_for(lock, period, [this] { return is_over_; })) tick();
      })) {}

Ticker::~Ticker() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  ends_.notify_all();
  thread_.join();
}

}  // namespace titan
