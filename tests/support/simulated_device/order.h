// What happens before what on a device with streams, told by vector clocks.
//
// A device runs what it is given later than the host gives it, stream beside stream: only what is queued on one stream,
// an event that one stream waits for, and a wait of the host put two operations in order. Here everything runs at once,
// on the host, and each operation's place in that order is kept: two that touch the same memory, one of them writing,
// and that nothing orders are a race, whether or not they would meet on a real device today.
//
// (Mattern, Virtual time and global states of distributed systems, 1989; FastTrack, PLDI 2009.)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace titan::sim {

using StreamId = int;  // from 0; kHost besides
inline constexpr StreamId kHost = -1;

// For each stream, how many of its operations are known to be over.
class Clock {
 public:
  std::uint64_t of(StreamId stream) const;
  void set(StreamId stream, std::uint64_t tick);
  void join(const Clock& other);

 private:
  std::vector<std::uint64_t> ticks_;
};

// An operation: the tick-th of its stream.
struct Moment {
  StreamId stream = 0;
  std::uint64_t tick = 0;
};

// Not thread-safe: the device holds a lock around it.
class Order {
 public:
  StreamId new_stream(std::string name);
  const std::string& name(StreamId stream) const { return names_.at(static_cast<std::size_t>(stream)); }
  int num_streams() const { return static_cast<int>(names_.size()); }

  // An operation is queued on `stream`: behind all that is queued there, and behind all that the host has waited for.
  Moment queue(StreamId stream);
  // What is over when all that is queued on `stream` is over: an event.
  Clock record(StreamId stream) const;
  // All that is queued on `stream` from here on, or all that the host does, comes after `event`.
  void stream_waits(StreamId stream, const Clock& event);
  void host_waits(const Clock& event);

  // Whether the operation is over before anything that is queued on `stream` from here on, or that the host does from
  // here on (kHost), begins.
  bool is_over_for(const Moment& moment, StreamId stream) const;

 private:
  std::vector<std::string> names_;
  std::vector<Clock> clocks_;
  Clock host_;
};

}  // namespace titan::sim
