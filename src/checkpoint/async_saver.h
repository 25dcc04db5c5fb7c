// Saves beside training. A thread copies the state to host memory, which the training must not change meanwhile, and
// then writes the copy while training goes on. One save at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "checkpoint/dcp/item.h"
#include "checkpoint/device_copies.h"

namespace titan::checkpoint {

class AsyncSaver {
 public:
  // Writes one save; runs on the saver's thread, with tensors on the host that nobody else changes.
  using Write = std::function<void(const std::vector<Item>& items)>;

  AsyncSaver() = default;
  // Waits for the save under way; what it throws is lost.
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  // Waits for the save before this one, and starts. Throws what that one threw.
  void start(std::vector<Item> items, Write write);
  // Until the tensors given to start() may change: before the optimizer's step. Those of a device may be changed by what
  // the caller queues on its stream from here on.
  void wait_staged();
  // Until the save under way is on the disk. Throws what it threw, once.
  void wait();
  // Throws what a save that is over threw, once; does not wait.
  void check();

  bool is_running() const;
  // How long the caller stood still for the last save: in start() and wait_staged().
  // Safe from any thread.
  double stall_seconds() const { return stall_seconds_; }

 private:
  std::vector<Item> stage(const std::vector<Item>& items);

  std::thread thread_;
  std::future<void> staged_;
  std::future<void> written_;
  std::vector<at::Tensor> staging_;  // of the last save, to be used again
  DeviceCopies copies_;
  std::atomic<double> stall_seconds_ = 0;
};

}  // namespace titan::checkpoint
