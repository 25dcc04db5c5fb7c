#include "tests/support/null_cuda/streams.h"

#include <map>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/null_cuda/errors.h"

namespace titan_null {
namespace {

struct Streams {
  std::mutex mutex;
  std::set<Stream*> all;
  std::map<int, Stream*> defaults;  // by device
};

Streams& streams() {
  static auto& known = *new Streams;
  return known;
}

}  // namespace

void Stream::submit(std::function<void()> work, bool at_once) {
  std::unique_lock lock(mutex_);
  ++num_submitted_;
  if (!at_once || is_busy_ || !queue_.empty()) {
    queue_.push_back(std::move(work));
    if (!has_thread_) std::thread([this] { run_queue(); }).detach();
    has_thread_ = true;
    changed_.notify_all();
    return;
  }
  carry_out(work, lock);
}

void Stream::carry_out(const std::function<void()>& work, std::unique_lock<std::mutex>& lock) {
  is_busy_ = true;
  lock.unlock();
  work();
  lock.lock();
  is_busy_ = false;
  ++num_done_;
  changed_.notify_all();
}

void Stream::run_queue() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !queue_.empty() && !is_busy_; });
    const auto work = std::move(queue_.front());
    queue_.pop_front();
    carry_out(work, lock);
  }
}

bool Stream::is_idle() {
  const std::lock_guard lock(mutex_);
  return num_done_ == num_submitted_;
}

void Stream::wait() {
  std::unique_lock lock(mutex_);
  const auto number = num_submitted_;
  changed_.wait(lock, [&] { return num_done_ >= number; });
}

Stream& stream_of(const void* handle) {
  if (reinterpret_cast<std::uintptr_t>(handle) > 2) return *static_cast<Stream*>(const_cast<void*>(handle));
  const std::lock_guard lock(streams().mutex);
  Stream*& found = streams().defaults[current_device()];
  if (!found) streams().all.insert(found = new Stream(current_device(), 0, 0));
  return *found;
}

Stream* make_stream(int device, unsigned flags, int priority) {
  auto* const made = new Stream(device, flags, priority);
  const std::lock_guard lock(streams().mutex);
  streams().all.insert(made);
  return made;
}

// The stream is not destroyed: a thread of its own may still run, and programs make few.
void release_stream(Stream* stream) {
  const std::lock_guard lock(streams().mutex);
  streams().all.erase(stream);
}

void wait_for_device(int device) {
  std::vector<Stream*> found;
  {
    const std::lock_guard lock(streams().mutex);
    for (Stream* stream : streams().all)
      if (stream->device == device) found.push_back(stream);
  }
  for (Stream* stream : found) stream->wait();
}

std::shared_ptr<Moment> moment_of(Event& event) {
  const std::lock_guard lock(event.mutex);
  return event.moment;
}

void record(Event& event, Stream& stream) {
  auto moment = std::make_shared<Moment>();
  {
    const std::lock_guard lock(event.mutex);
    event.moment = moment;
  }
  stream.run([moment] {
    moment->time = std::chrono::steady_clock::now();
    moment->is_done = true;
    moment->is_done.notify_all();
  });
}

void wait_for(const Event& event, Stream& stream) {
  const auto moment = moment_of(const_cast<Event&>(event));
  if (moment && !moment->is_done) stream.run_beside([moment] { moment->is_done.wait(false); });
}

}  // namespace titan_null
