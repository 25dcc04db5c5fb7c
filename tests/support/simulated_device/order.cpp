#include "tests/support/simulated_device/order.h"

#include <algorithm>
#include <utility>

namespace titan::sim {

std::uint64_t Clock::of(StreamId stream) const {
  const auto at = static_cast<std::size_t>(stream);
  return at < ticks_.size() ? ticks_[at] : 0;
}

void Clock::set(StreamId stream, std::uint64_t tick) {
  const auto at = static_cast<std::size_t>(stream);
  if (at >= ticks_.size()) ticks_.resize(at + 1);
  ticks_[at] = tick;
}

void Clock::join(const Clock& other) {
  ticks_.resize(std::max(ticks_.size(), other.ticks_.size()));
  for (std::size_t i = 0; i < other.ticks_.size(); ++i) ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
}

StreamId Order::new_stream(std::string name) {
  names_.push_back(std::move(name));
  clocks_.emplace_back();
  return num_streams() - 1;
}

Moment Order::queue(StreamId stream) {
  Clock& clock = clocks_.at(static_cast<std::size_t>(stream));
  clock.join(host_);
  const Moment moment{stream, clock.of(stream) + 1};
  clock.set(stream, moment.tick);
  return moment;
}

Clock Order::record(StreamId stream) const { return clocks_.at(static_cast<std::size_t>(stream)); }

void Order::stream_waits(StreamId stream, const Clock& event) {
  clocks_.at(static_cast<std::size_t>(stream)).join(event);
}

void Order::host_waits(const Clock& event) { host_.join(event); }

bool Order::is_over_for(const Moment& moment, StreamId stream) const {
  const Clock& clock = stream == kHost ? host_ : clocks_.at(static_cast<std::size_t>(stream));
  // Operations that the host has waited for are over for everything that it queues.
  return std::max(clock.of(moment.stream), host_.of(moment.stream)) >= moment.tick;
}

}  // namespace titan::sim
