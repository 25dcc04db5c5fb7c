// Calls a function periodically on its own thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace titan {

// Calls `tick` every `period` on its own thread while it lives, for the first time after one
// period. The destructor waits for a call that is running.
class Ticker {
 public:
  // `purpose`, for the error if the system refuses a thread, completes "the thread that ...".
  Ticker(const std::string& purpose, std::chrono::milliseconds period, std::function<void()> tick);
  ~Ticker();
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ends_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace titan
