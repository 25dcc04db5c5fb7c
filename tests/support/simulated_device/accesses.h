// Records accesses to the device's memory, and finds pairs of them that nothing orders.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/support/simulated_device/order.h"

namespace titan::sim {

using Address = std::uintptr_t;

struct Bytes {
  Address begin = 0, end = 0;

  bool overlaps(const Bytes& other) const { return begin < other.end && other.begin < end; }
  bool contains(const Bytes& other) const { return begin <= other.begin && other.end <= end; }
};

struct Access {
  Bytes bytes;
  bool writes = false;
  Moment moment;            // operation of a stream; unset for the host's
  StreamId stream = 0;      // or kHost
  std::uint64_t block = 0;  // allocation that it was meant to touch
  std::string what;         // "aten::mm, reads its input 0"
};

// Names an access and where it ran: "aten::mm, reads its input 0 (reads, on stream compute)".
std::string text_of(const Access& access, const Order& order);

struct Race {
  enum class Kind {
    kUnordered,  // in one block: nothing orders the two
    kReuse,      // the earlier one was in a freed block, whose memory was reused too early
    kByHost      // the host reads or writes memory that a stream still uses
  };
  Kind kind;
  Access earlier, later;
  std::string text(const Order& order) const;
};

class Accesses {
 public:
  // Records the access, and returns the earlier accesses with which it races. `order` already includes the operation.
  std::vector<Race> add(const Order& order, Access access);
  // Returns the accesses to these bytes by operations that may still run when what `stream` queues next begins.
  std::vector<Access> open(const Order& order, const Bytes& bytes, StreamId stream) const;
  // Forgets accesses to bytes that are no longer checked.
  void forget(const Bytes& bytes);

 private:
  Address first_before(const Bytes& bytes) const;

  std::multimap<Address, Access> by_begin_;
  Address longest_ = 0;  // length of the longest access so far
};

}  // namespace titan::sim
