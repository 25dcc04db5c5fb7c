// Who touched which bytes of the device's memory, and which two of them nothing puts in order.
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
  Moment moment;            // of a stream; the host's have none
  StreamId stream = 0;      // or kHost
  std::uint64_t block = 0;  // which allocation it thought it touched
  std::string what;         // "aten::mm, reads its input 0"
};

struct Race {
  enum class Kind {
    kUnordered,  // of one block: nothing orders the two
    kReuse,      // the earlier was of a block that was freed: its memory was given out again too early
    kByHost      // the host reads or writes what a stream has not done with
  };
  Kind kind;
  Access earlier, later;
  std::string text(const Order& order) const;
};

class Accesses {
 public:
  // Notes the access, and returns those before it that it races with. `order` is as it is when the operation is queued,
  // which is part of it already.
  std::vector<Race> add(const Order& order, Access access);
  // Nobody asks about these bytes any more.
  void forget(const Bytes& bytes);

 private:
  std::multimap<Address, Access> by_begin_;
  Address longest_ = 0;  // of any access so far
};

}  // namespace titan::sim
