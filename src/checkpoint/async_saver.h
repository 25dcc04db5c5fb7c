// Saves in the background: a thread copies the state to host memory, then writes the copy while training continues.
// Training must not change the state during the copy. One save at a time.
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
  // Waits for the save under way; its error is lost.
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  // Gets the page-locked memory for the copies of device tensors, on a thread, so that the first save does not wait for
  // it: the system locks a few gigabytes a second. Does nothing for host tensors, or once a save has begun. A failure
  // is left to that save.
  void reserve(const std::vector<Item>& items);
  // Waits for the previous save, then starts this one. Throws the error of the previous save. If the system refuses a
  // thread, does this save before it returns, with a warning.
  void start(std::vector<Item> items, Write write);
  // Waits until the tensors given to start() may change; call before the optimizer step. Device tensors may be changed
  // by work that the caller queues on its stream after this call.
  void wait_staged();
  // Waits until the save under way is on disk. Throws its error, once.
  void wait();
  // Throws the error of a finished save, once; does not wait.
  void check();

  bool is_running() const;
  // Seconds that the last save blocked the caller in start() and wait_staged(). Safe from any thread.
  double stall_seconds() const { return stall_seconds_; }

 private:
  std::vector<Item> stage(const std::vector<Item>& items);
  at::Tensor& staging(std::size_t index, const at::Tensor& live);

  std::thread thread_;
  std::future<void> staged_;
  std::future<void> written_;
  std::vector<at::Tensor> staging_;  // copies of the last save, reused by the next; the thread's while it runs
  DeviceCopies copies_;
  std::atomic<double> stall_seconds_ = 0;
};

}  // namespace titan::checkpoint
