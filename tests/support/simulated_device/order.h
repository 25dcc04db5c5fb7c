// The happens-before order of operations on a device with streams, by vector clocks.
//
// A device runs operations later than the host queues them, and its streams run concurrently. Two operations are
// ordered only if they are queued on one stream, if one stream waits for an event of the other, or if the host waits.
// Here every operation runs immediately, on the host, and its place in that order is recorded. Two operations that
// touch the same memory, one of them writing, are a race if nothing orders them, whether or not they would collide on a
// real device today.
//
// (Mattern, Virtual time and global states of distributed systems, 1989; FastTrack, PLDI 2009.)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace titan::sim {

using StreamId = int;  // from 0; or kHost
inline constexpr StreamId kHost = -1;

// Number of operations that are known to be over, per stream.
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

// The order of all operations. Not thread-safe: the device holds a lock around it.
class Order {
 public:
  StreamId new_stream(std::string name);
  const std::string& name(StreamId stream) const { return names_.at(static_cast<std::size_t>(stream)); }
  int num_streams() const { return static_cast<int>(names_.size()); }

  // Queues an operation on `stream`, after all that is queued there and all that the host has waited for.
  Moment queue(StreamId stream);
  // Records an event: the operations that are over once everything queued on `stream` is over.
  Clock record(StreamId stream) const;
  // Orders all later operations of `stream`, or of the host, after `event`.
  void stream_waits(StreamId stream, const Clock& event);
  void host_waits(const Clock& event);

  // True if the operation is over before anything that is queued on `stream` from now on begins, or anything that the
  // host does from now on (kHost).
  bool is_over_for(const Moment& moment, StreamId stream) const;

 private:
  std::vector<std::string> names_;
  std::vector<Clock> clocks_;
  Clock host_;
};

}  // namespace titan::sim
