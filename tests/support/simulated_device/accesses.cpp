#include "tests/support/simulated_device/accesses.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace titan::sim {
namespace {

Race::Kind kind_of(const Access& earlier, const Access& later) {
  if (later.stream == kHost) return Race::Kind::kByHost;
  return earlier.block == later.block ? Race::Kind::kUnordered : Race::Kind::kReuse;
}

}  // namespace

std::string text_of(const Access& access, const Order& order) {
  return access.what + " (" + (access.writes ? "writes" : "reads") + ", on " +
         (access.stream == kHost ? std::string("the host") : "stream " + order.name(access.stream)) + ")";
}

std::string Race::text(const Order& order) const {
  const std::string both = text_of(later, order) + " is not ordered after " + text_of(earlier, order);
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
  for (auto at = by_begin_.lower_bound(first_before(bytes)); at != by_begin_.end() && at->first < bytes.end;) {
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

// Returns the first address at which an access to some of these bytes may begin.
Address Accesses::first_before(const Bytes& bytes) const { return bytes.begin > longest_ ? bytes.begin - longest_ : 0; }

std::vector<Access> Accesses::open(const Order& order, const Bytes& bytes, StreamId stream) const {
  std::vector<Access> out;
  for (auto at = by_begin_.lower_bound(first_before(bytes)); at != by_begin_.end() && at->first < bytes.end; ++at) {
    const Access& access = at->second;
    const bool is_over = access.stream == kHost || order.is_over_for(access.moment, stream);
    if (access.bytes.overlaps(bytes) && !is_over) out.push_back(access);
  }
  return out;
}

void Accesses::forget(const Bytes& bytes) {
  for (auto at = by_begin_.lower_bound(bytes.begin); at != by_begin_.end() && at->first < bytes.end;)
    at = bytes.contains(at->second.bytes) ? by_begin_.erase(at) : std::next(at);
}

}  // namespace titan::sim
