// Ranks of one host that show each other the inputs of their collectives, through memory that each of them owns.
//
// Each rank publishes its input under the number of the operation and continues without waiting. Who needs the inputs
// of an operation waits until all ranks have published theirs, reads them where they lie, and says when it is done with
// them. Memory is used again when all ranks are done with it: it is bounded by the operations in flight.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "distributed/shared_memory/shared_segment.h"

namespace titan::dist {

enum class SharedKind : std::uint8_t { kAllGather, kReduceScatter, kSum, kMax, kMin, kBroadcast, kBarrier };

// What ranks must agree on in one operation.
struct SharedSignature {
  SharedKind kind;
  at::ScalarType dtype;
  std::int64_t numel;  // of one rank's input; that of the root in a broadcast
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

 private:
  std::shared_ptr<SharedChannel> channel_;
  std::uint64_t number_;
  SharedSignature signature_;
};

class SharedChannel : public std::enable_shared_from_this<SharedChannel> {
 public:
  static constexpr std::uint64_t kMaxInFlight = 1024;

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

  BlockPool::Stats stats() const;

 private:
  friend class SharedOperation;
  struct Header;
  struct Peer;
  struct InFlight {
    std::uint64_t number;
    std::size_t offset;
  };
  static constexpr std::size_t kNoBlock = 0;  // the header lies there

  Header& own_header() const;
  void done(std::uint64_t number);
  void await(const Peer& peer, std::uint64_t number, const SharedSignature& signature,
             std::chrono::milliseconds timeout) const;
  void check_same(const Peer& peer, std::uint64_t number, const SharedSignature& signature) const;
  std::uint64_t done_by_all() const;
  void reclaim();
  std::size_t take(std::size_t bytes);
  std::size_t place(const at::Tensor& input, bool may_share);

  int rank_;
  int global_rank_;
  std::shared_ptr<const SharedSegment> segment_;
  std::vector<Peer> peers_;  // in rank order, this rank included

  mutable std::mutex mutex_;  // of all below
  BlockPool pool_;
  std::deque<InFlight> in_flight_;
  std::set<std::uint64_t> done_early_;  // beyond the first that is not done
  std::uint64_t next_ = 0;
};

}  // namespace titan::dist
