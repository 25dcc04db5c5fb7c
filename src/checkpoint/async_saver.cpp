#include "checkpoint/async_saver.h"

#include <ATen/ATen.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <utility>

#include "base/threads/start_thread.h"

namespace titan::checkpoint {
namespace {

// Adds the time from construction to destruction to `seconds`.
class StallTimer {
 public:
  explicit StallTimer(std::atomic<double>& seconds) : seconds_(seconds) {}
  ~StallTimer() {
    seconds_ = seconds_ + std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::atomic<double>& seconds_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

at::Device device_of(const std::vector<Item>& items) {
  for (const Item& item : items) {
    const auto* tensor = std::get_if<TensorItem>(&item);
    if (tensor && !tensor->local.is_cpu()) return tensor->local.device();
  }
  return at::kCPU;
}

}  // namespace

AsyncSaver::~AsyncSaver() {
  if (thread_.joinable()) thread_.join();
}

bool AsyncSaver::is_running() const {
  return written_.valid() && written_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

void AsyncSaver::reserve(const std::vector<Item>& items) {
  if (thread_.joinable() || !staging_.empty() || device_of(items).is_cpu()) return;
  std::vector<at::Tensor> like;  // without data, so that training may change and free its own
  for (const Item& item : items)
    if (const auto* tensor = std::get_if<TensorItem>(&item))
      like.push_back(tensor->local.is_cpu() ? at::Tensor() : at::empty_like(tensor->local, at::kMeta));
  try {
    thread_ = start_thread("gets memory for saves", [this, like = std::move(like)] {
      try {
        for (std::size_t i = 0; i < like.size(); ++i)
          if (like[i].defined()) staging(i, like[i]);
      } catch (const std::exception&) {  // the first save tries again, and reports what is missing
      }
    });
  } catch (const Error&) {  // the first save warns if the system still refuses a thread
  }
}

void AsyncSaver::start(std::vector<Item> items, Write write) {
  stall_seconds_ = 0;
  const StallTimer timer(stall_seconds_);
  wait();
  std::promise<void> staged, written;
  staged_ = staged.get_future();
  written_ = written.get_future();
  copies_.begin(device_of(items));
  auto save = [this, items = std::move(items), write = std::move(write), staged = std::move(staged),
               written = std::move(written)]() mutable {
    bool is_staged = false;
    try {
      const std::vector<Item> copies = stage(items);
      is_staged = true;
      staged.set_value();
      copies_.host_waits();
      items.clear();
      write(copies);
      written.set_value();
    } catch (...) {
      if (!is_staged) staged.set_value();
      written.set_exception(std::current_exception());
    }
  };
  // The thread holds its own reference: a thread that could not be started must leave the save to this one.
  const auto shared = std::make_shared<decltype(save)>(std::move(save));
  try {
    thread_ = start_thread("saves in the background", [shared] { (*shared)(); });
  } catch (const Error& error) {
    spdlog::warn("{}. Training waits for this save", error.what());
    (*shared)();
  }
}

std::vector<Item> AsyncSaver::stage(const std::vector<Item>& items) {
  const at::NoGradGuard no_grad;
  std::vector<Item> copies = items;
  std::size_t next = 0;
  for (Item& item : copies) {
    auto* tensor = std::get_if<TensorItem>(&item);
    if (!tensor) continue;
    const at::Tensor& copy = staging(next++, tensor->local);
    copies_.copy(copy, tensor->local);
    tensor->local = copy;
  }
  staging_.resize(next);
  copies_.end();
  return copies;
}

// Returns the memory for the copy of the save's tensor at `index`, which is like `live`. It is page-locked unless that
// is on the host: a copy from the device then runs at the link's speed.
at::Tensor& AsyncSaver::staging(std::size_t index, const at::Tensor& live) {
  if (index >= staging_.size()) staging_.resize(index + 1);
  at::Tensor& copy = staging_[index];
  const bool fits = copy.defined() && copy.sizes() == live.sizes() && copy.scalar_type() == live.scalar_type();
  if (!fits) copy = at::empty(live.sizes(), at::TensorOptions(live.scalar_type()).pinned_memory(!live.is_cpu()));
  return copy;
}

void AsyncSaver::wait_staged() {
  if (!staged_.valid()) return;
  const StallTimer timer(stall_seconds_);
  staged_.get();
  copies_.current_stream_waits();
}

void AsyncSaver::wait() {
  if (thread_.joinable()) thread_.join();
  if (!written_.valid()) return;
  staged_ = {};
  std::exchange(written_, {}).get();
}

void AsyncSaver::check() {
  if (written_.valid() && !is_running()) wait();
}

}  // namespace titan::checkpoint
