#include "tests/support/simulated_device/accesses.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace titan::sim {
namespace {

std::string side(const Access& access, const Order& order) {
  return access.what + " (" + (access.writes ? "writes" : "reads") + ", on " +
         (access.stream == kHost ? std::string("the host") : "stream " + order.name(access.stream)) + ")";
}

Race::Kind kind_of(const Access& earlier, const Access& later) {
  if (later.stream == kHost) return Race::Kind::kByHost;
  return earlier.block == later.block ? Race::Kind::kUnordered : Race::Kind::kReuse;
}

}  // namespace

std::string Race::text(const Order& order) const {
  const std::string both = side(later, order) + " is not ordered after " + side(earlier, order);
  switch (kind) {
    case Kind::kReuse:
      return "memory was given out again while a stream may still use it: " + both;
    case Kind::kByHost:
      return "the host does not wait: " + both;
    case Kind::kUnordered:
      break;
  }
  return both;
}

std::vector<Race> Accesses::add(const Order& order, Access access) {
  std::vector<Race> races;
  const Bytes& bytes = access.bytes;
  longest_ = std::max(longest_, bytes.end - bytes.begin);
  const Address first = bytes.begin > longest_ ? bytes.begin - longest_ : 0;
  for (auto at = by_begin_.lower_bound(first); at != by_begin_.end() && at->first < bytes.end;) {
    const Access& earlier = at->second;
    if (!earlier.bytes.overlaps(bytes)) {
      ++at;
      continue;
    }
    const bool is_over = earlier.stream == kHost || order.is_over_for(earlier.moment, access.stream);
    if (!is_over && (earlier.writes || access.writes)) races.push_back({kind_of(earlier, access), earlier, access});
    // An operation ordered after this access is also ordered after the earlier one; any other races with this access.
    const bool is_covered =
        bytes.contains(earlier.bytes) && (access.writes || (!earlier.writes && earlier.stream == access.stream));
    at = is_covered ? by_begin_.erase(at) : std::next(at);
  }
  by_begin_.emplace(bytes.begin, std::move(access));
  return races;
}

void Accesses::forget(const Bytes& bytes) {
  for (auto at = by_begin_.lower_bound(bytes.begin); at != by_begin_.end() && at->first < bytes.end;)
    at = bytes.contains(at->second.bytes) ? by_begin_.erase(at) : std::next(at);
}

}  // namespace titan::sim
