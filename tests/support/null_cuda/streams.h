#pragma once

// Streams and events. Work runs at once, in the thread that submits it, as long as nothing before it in the stream is
// still waiting: only collectives and waits for events that follow them take time. Then a thread of the stream runs
// the rest in order, so that the host goes on as it does beside a GPU.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace titan_null {

class Stream {
 public:
  Stream(int on_device, unsigned its_flags, int its_priority)
      : device(on_device), flags(its_flags), priority(its_priority) {}

  // Runs work after all before it: at once if there is none.
  void run(std::function<void()> work) { submit(std::move(work), /*at_once=*/true); }
  // Does the same in the thread of the stream, for work that may wait.
  void run_beside(std::function<void()> work) { submit(std::move(work), /*at_once=*/false); }
  bool is_idle();
  // Returns when all work so far is done.
  void wait();

  const int device;
  const unsigned flags;
  const int priority;

 private:
  void submit(std::function<void()> work, bool at_once);
  void run_queue();
  // Runs work without the lock, which is held before and after.
  void carry_out(const std::function<void()>& work, std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool is_busy_ = false;     // work runs, here or in the thread
  bool has_thread_ = false;  // the thread is started at the first work that may wait
  std::uint64_t num_submitted_ = 0, num_done_ = 0;
};

// The moment that an event was recorded for. Each recording makes a new one.
struct Moment {
  std::atomic<bool> is_done = false;
  std::chrono::steady_clock::time_point time;
};

struct Event {
  unsigned flags = 0;
  std::mutex mutex;
  std::shared_ptr<Moment> moment;  // null before the first recording
};

// Returns the stream of a handle; null, 1 and 2 are the default streams of the device that is current.
Stream& stream_of(const void* handle);

// Makes a stream that lives until release_stream(); its work in flight keeps it alive.
Stream* make_stream(int device, unsigned flags, int priority);
void release_stream(Stream* stream);

// Returns when all streams of a device are idle.
void wait_for_device(int device);

void record(Event& event, Stream& stream);
void wait_for(const Event& event, Stream& stream);
std::shared_ptr<Moment> moment_of(Event& event);

}  // namespace titan_null
