// Ranks of one host that show each other the inputs of their collectives, through memory that each of them owns.
//
// Each rank publishes its input under the number of the operation and continues without waiting. Who needs the inputs
// of an operation waits until all ranks have published theirs, reads them where they lie, and says when it is done with
// them. Memory is used again when all ranks are done with it: it is bounded by the operations in flight.
//
// An all-gather may also have an output that exists once for all of them, in the memory of the group's first rank: each
// rank writes its part of it, and nobody copies.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "distributed/shared_memory/place_book.h"
#include "distributed/shared_memory/shared_segment.h"

namespace titan::dist {

enum class SharedKind : std::uint8_t {
  kAllGather,
  kAllGatherInPlace,
  kReduceScatter,
  kSum,
  kMax,
  kMin,
  kBroadcast,
  kBarrier
};

// What ranks must agree on in one operation.
struct SharedSignature {
  SharedKind kind;
  at::ScalarType dtype;
  std::int64_t numel;  // of one rank's input; that of the root in a broadcast, of the output in place
  bool operator==(const SharedSignature&) const = default;
};

// How a rank's segment is found by the others, and whose it is.
struct SegmentAddress {
  std::int32_t global_rank;
  std::int32_t pid;
  std::int32_t descriptor;
  std::uint64_t capacity;
  std::uint64_t mark;  // written in the segment: process ids mean something else in another container
};

// One line, and back.
std::string to_text(const SegmentAddress& address);
SegmentAddress segment_address_from_text(const std::string& text);

class SharedChannel;
class SharedGather;

// One operation that this rank has published. It needs the others' inputs until the object and all that inputs() gave
// are gone.
class SharedOperation : public std::enable_shared_from_this<SharedOperation> {
 public:
  SharedOperation(std::shared_ptr<SharedChannel> channel, std::uint64_t number, const SharedSignature& signature)
      : channel_(std::move(channel)), number_(number), signature_(signature) {}
  SharedOperation(const SharedOperation&) = delete;
  SharedOperation& operator=(const SharedOperation&) = delete;
  ~SharedOperation();

  // The inputs of all ranks [numel], in rank order, where they lie; to be read only. Waits for those who have not
  // published theirs; throws PeerError when one has ended or `timeout` passed, DistError when it published something
  // else.
  std::vector<at::Tensor> inputs(std::chrono::milliseconds timeout);
  // The same for one rank of the group, the only one that is waited for.
  at::Tensor input(int rank, std::chrono::milliseconds timeout);
  // Where it lies in that rank's segment, or the output in place in the first rank's.
  std::size_t offset(int rank, std::chrono::milliseconds timeout);

 private:
  std::shared_ptr<SharedChannel> channel_;
  std::uint64_t number_;
  SharedSignature signature_;
};

class SharedChannel : public std::enable_shared_from_this<SharedChannel> {
 public:
  static constexpr std::uint64_t kMaxInFlight = 1024;
  static constexpr int kMostPlaces = 4096;

  // A segment of `capacity` bytes of addresses, of which only what is written takes memory. Throws DistError when the
  // system gives no such memory.
  SharedChannel(int rank, int global_rank, std::size_t capacity = SharedSegment::kDefaultCapacity);
  ~SharedChannel();

  SegmentAddress address() const;
  // Opens the segments of all ranks (their addresses in rank order, this one's included), who must still be there.
  // Throws DistError.
  void connect(const std::vector<SegmentAddress>& addresses);
  // The same where the segments are mapped already, this rank's included: ranks that are threads may read one mapping.
  void connect(const std::vector<SegmentAddress>& addresses,
               const std::vector<std::shared_ptr<const SharedSegment>>& segments);
  std::shared_ptr<const SharedSegment> segment() const { return segment_; }

  // A contiguous tensor in the segment, for publish() to show as it is. Safe from several threads, as all below.
  at::Tensor buffer(std::int64_t numel, at::ScalarType dtype);

  // Shows `input` (contiguous) as this rank's part of the next operation; copies it unless it lies in a buffer() and is
  // not reduced in place. A buffer must not be written from here on. Empty where nobody reads it. Throws InternalError
  // with kMaxInFlight operations that some rank needs, DistError without memory.
  std::shared_ptr<SharedOperation> publish(const SharedSignature& signature, const at::Tensor& input);

  // Whether gather() has a place for these; the same on all ranks that have started, and let go of, the same.
  bool has_place_for(at::ScalarType dtype, std::int64_t numel) const;
  // Starts an all-gather of which the output, of `numel`, exists once for all ranks; an operation like the others. All
  // ranks must start these, and let go of their outputs, in the same order: by that they agree where each lies. Throws as
  // publish() does.
  std::shared_ptr<SharedGather> gather(at::ScalarType dtype, std::int64_t numel);

  BlockPool::Stats stats() const;
  std::size_t bytes_of_places() const;

 private:
  friend class SharedOperation;
  friend class SharedGather;
  struct Header;
  struct Peer;
  struct InFlight {
    std::uint64_t number;
    std::size_t offset;
  };
  static constexpr std::size_t kNoBlock = 0;  // the header lies there

  Header& own_header() const;
  void done(std::uint64_t number);
  // Until `is_there`, which what `peer` does makes true.
  void await(const Peer& peer, const SharedSignature& signature, std::chrono::milliseconds timeout,
             const std::function<bool()>& is_there) const;
  void check_same(const Peer& peer, std::uint64_t number, const SharedSignature& signature) const;
  std::uint64_t done_by_all() const;
  void reclaim();
  void check_may_start(const SharedSignature& signature);
  std::size_t take(std::size_t bytes);
  std::size_t place(const at::Tensor& input, bool may_share);
  // Shows all ranks that this one has started the next operation, and what it shows of it at `offset` of a segment.
  std::shared_ptr<SharedOperation> announce(const SharedSignature& signature, std::size_t offset);
  [[noreturn]] void throw_no_memory(std::size_t bytes) const;
  void give_back(const PlaceBook::Place& place);

  int rank_;
  int global_rank_;
  std::shared_ptr<const SharedSegment> segment_;
  std::vector<Peer> peers_;  // in rank order, this rank included; the first one's segment has the places

  mutable std::mutex mutex_;  // of all below
  BlockPool pool_;
  std::deque<InFlight> in_flight_;
  std::set<std::uint64_t> done_early_;  // beyond the first that is not done
  std::uint64_t next_ = 0;
  std::optional<PlaceBook> places_;
};

// An all-gather whose output exists once. This rank has its place until the object and all that output() gave are gone.
// The calls in this order: is_free() or wait_until_free(), writing this rank's part of output(), set_written(),
// wait_until_whole(). Ranks must wait in the order in which they started, or they may wait for each other for ever.
class SharedGather : public std::enable_shared_from_this<SharedGather> {
 public:
  SharedGather(std::shared_ptr<SharedChannel> channel, std::shared_ptr<SharedOperation> operation,
               const SharedSignature& signature, const PlaceBook::Place& place)
      : channel_(std::move(channel)), operation_(std::move(operation)), signature_(signature), place_(place) {}
  SharedGather(const SharedGather&) = delete;
  SharedGather& operator=(const SharedGather&) = delete;
  ~SharedGather();

  at::Tensor output();  // [numel of the signature]
  // Whether all ranks have let go of what lay in its place before.
  bool is_free() const;
  void wait_until_free(std::chrono::milliseconds timeout) const;
  void set_written();
  // Until all ranks have written their parts. Throws as SharedOperation::inputs() does.
  void wait_until_whole(std::chrono::milliseconds timeout);

 private:
  bool has_let_go(const SharedChannel::Peer& peer) const;

  std::shared_ptr<SharedChannel> channel_;
  std::shared_ptr<SharedOperation> operation_;  // null when it is over
  SharedSignature signature_;
  PlaceBook::Place place_;
};

}  // namespace titan::dist
