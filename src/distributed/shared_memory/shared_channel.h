// Lets the ranks of one host read each other's inputs of collectives, in memory that each rank owns.
//
// Each rank publishes its input under the number of the operation and continues without waiting. A rank that needs
// the inputs of an operation waits until all ranks have published theirs, reads them in place, and reports when it is
// done with them. Memory is reused when all ranks are done with it, so it is bounded by the operations in flight.
//
// Two ranks may also exchange messages, in which the others have no part (shared_mail.h).
//
// An all-gather may also have one output that all ranks share, in the memory of the group's first rank: each rank
// writes its part of it, without further copies.
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

#include "distributed/shared_memory/block_allocator.h"
#include "distributed/shared_memory/shared_mail.h"
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

// Properties of an operation that all ranks must agree on.
struct SharedSignature {
  SharedKind kind;
  at::ScalarType dtype;
  std::int64_t numel;  // elements of one rank's input (broadcast: the root's; all-gather in place: the output's)
  bool operator==(const SharedSignature&) const = default;
};

// Identifies a rank's segment to the other ranks.
struct SegmentAddress {
  std::int32_t global_rank;
  std::int32_t pid;
  std::int32_t descriptor;
  std::uint64_t capacity;
  std::uint64_t mark;  // also in the segment: a process id may mean another process in another container
};

// Conversion to one line of text and back.
std::string to_text(const SegmentAddress& address);
SegmentAddress segment_address_from_text(const std::string& text);

class SharedChannel;
class SharedGather;

// One operation that this rank has published. It holds the others' inputs until the object and all tensors of
// inputs() are gone.
class SharedOperation : public std::enable_shared_from_this<SharedOperation> {
 public:
  SharedOperation(std::shared_ptr<SharedChannel> channel, std::uint64_t number, const SharedSignature& signature)
      : channel_(std::move(channel)), number_(number), signature_(signature) {}
  SharedOperation(const SharedOperation&) = delete;
  SharedOperation& operator=(const SharedOperation&) = delete;
  ~SharedOperation();

  // Returns the inputs [numel] of all ranks, in rank order, in place and read-only. Waits for ranks that have yet to
  // publish theirs. Throws PeerError if one has ended or `timeout` passed, DistError if it published another
  // operation.
  std::vector<at::Tensor> inputs(std::chrono::milliseconds timeout);
  // Like inputs(), but returns one rank's input and waits only for that rank.
  at::Tensor input(int rank, std::chrono::milliseconds timeout);
  // Returns the offset of that rank's input in its segment, or of the output in place in the first rank's.
  std::size_t offset(int rank, std::chrono::milliseconds timeout);

 private:
  std::shared_ptr<SharedChannel> channel_;
  std::uint64_t number_;
  SharedSignature signature_;
};

class SharedChannel : public std::enable_shared_from_this<SharedChannel> {
 public:
  static constexpr std::uint64_t kMaxInFlight = 1024;
  static constexpr int kMaxBlocks = 4096;

  // Makes a segment of `capacity` bytes of addresses, of which only written pages take memory. Throws DistError if
  // the system refuses.
  SharedChannel(int rank, int global_rank, std::size_t capacity = SharedSegment::kDefaultCapacity);
  ~SharedChannel();

  SegmentAddress address() const;
  // Opens the segments of all ranks, which must still be alive. `addresses` are in rank order and include this
  // rank's. Throws DistError.
  void connect(const std::vector<SegmentAddress>& addresses);
  // The same for segments that are mapped already, including this rank's: ranks that are threads may share a mapping.
  void connect(const std::vector<SegmentAddress>& addresses,
               const std::vector<std::shared_ptr<const SharedSegment>>& segments);
  std::shared_ptr<const SharedSegment> segment() const { return segment_; }

  // Returns a contiguous tensor in the segment, which publish() need not copy. Thread-safe, like all methods below.
  at::Tensor buffer(std::int64_t numel, at::ScalarType dtype);

  // Publishes `input` (contiguous; empty if no rank reads it) as this rank's part of the next operation. Copies it,
  // unless it is in a buffer() and the operation is an all-gather or a reduce-scatter; such a buffer must not be
  // written from here on. Throws InternalError if kMaxInFlight operations are not done on every rank, DistError if
  // there is not enough memory.
  std::shared_ptr<SharedOperation> publish(const SharedSignature& signature, const at::Tensor& input);

  // Messages between this rank and others.
  SharedMail& mail() { return mail_; }

  // True if gather() has memory for these. The same on all ranks that have started and freed the same gathers.
  bool can_allocate(at::ScalarType dtype, std::int64_t numel) const;
  // Starts an all-gather whose output [numel] all ranks share; it counts as an operation. All ranks must start these,
  // and free their outputs, in the same order, so that they agree on the blocks. Throws like publish().
  std::shared_ptr<SharedGather> gather(at::ScalarType dtype, std::int64_t numel);

  BlockPool::Stats stats() const;
  std::size_t bytes_of_blocks() const;

 private:
  friend class SharedOperation;
  friend class SharedGather;
  friend class SharedMail;
  struct Header;
  struct Peer;
  struct InFlight {
    std::uint64_t number;
    std::size_t offset;
  };
  static constexpr std::size_t kNoBlock = 0;  // the header's place

  Header& own_header() const;
  // Returns what the rank `owner` shares with the rank `other` alone.
  const Mailbox& mailbox(int owner, int other) const;
  Mailbox& own_mailbox(int other) const;
  const Peer& peer(int rank) const;
  int global_rank_of(int rank) const;
  std::byte* data_of(int rank) const;  // that rank's segment
  void ring_own_bell() const;
  void done(std::uint64_t number);
  // Waits until `is_there`, which `peer` makes true. Throws like SharedOperation::inputs(); `what` names for its
  // message what `peer` owes: "message of 8 bytes".
  void await(const Peer& peer, const std::function<std::string()>& what, std::chrono::milliseconds timeout,
             const std::function<bool()>& is_there) const;
  void await(int rank, const std::function<std::string()>& what, std::chrono::milliseconds timeout,
             const std::function<bool()>& is_there) const;
  void await(const Peer& peer, const SharedSignature& signature, std::chrono::milliseconds timeout,
             const std::function<bool()>& is_there) const;
  void check_same(const Peer& peer, std::uint64_t number, const SharedSignature& signature) const;
  std::uint64_t done_by_all() const;
  void reclaim();
  void check_may_start(const SharedSignature& signature);
  std::size_t take(std::size_t bytes);
  std::size_t place(const at::Tensor& input, bool may_share);
  // Releases what place() returned.
  void give_back(std::size_t offset);
  // Publishes the start of the next operation, and the `offset` of its data in a segment.
  std::shared_ptr<SharedOperation> announce(const SharedSignature& signature, std::size_t offset);
  [[noreturn]] void throw_no_memory(std::size_t bytes) const;
  void free_block(const BlockAllocator::Block& block);

  int rank_;
  int global_rank_;
  std::shared_ptr<const SharedSegment> segment_;
  std::vector<Peer> peers_;  // in rank order, this rank included; the first rank's segment has the blocks

  mutable std::mutex mutex_;  // guards all below
  BlockPool pool_;
  std::deque<InFlight> in_flight_;
  std::set<std::uint64_t> done_early_;  // numbers after the first that is not done
  std::uint64_t next_ = 0;
  std::optional<BlockAllocator> blocks_;
  SharedMail mail_{*this};
};

// An all-gather whose output all ranks share. This rank holds its block until the object and all tensors of output()
// are gone. Call in this order: is_free() or wait_until_free(), write this rank's part of output(), set_written(),
// wait_until_whole(). Ranks must wait in the order in which they started these, or they may deadlock.
class SharedGather : public std::enable_shared_from_this<SharedGather> {
 public:
  SharedGather(std::shared_ptr<SharedChannel> channel, std::shared_ptr<SharedOperation> operation,
               const SharedSignature& signature, const BlockAllocator::Block& block)
      : channel_(std::move(channel)), operation_(std::move(operation)), signature_(signature), block_(block) {}
  SharedGather(const SharedGather&) = delete;
  SharedGather& operator=(const SharedGather&) = delete;
  ~SharedGather();

  at::Tensor output();  // [numel of the signature]
  // True if all ranks have freed the output that was in its block before.
  bool is_free() const;
  void wait_until_free(std::chrono::milliseconds timeout) const;
  void set_written();
  // Waits until all ranks have written their parts. Throws like SharedOperation::inputs().
  void wait_until_whole(std::chrono::milliseconds timeout);

 private:
  bool has_freed(const SharedChannel::Peer& peer) const;

  std::shared_ptr<SharedChannel> channel_;
  std::shared_ptr<SharedOperation> operation_;  // null when it is over
  SharedSignature signature_;
  BlockAllocator::Block block_;
};

}  // namespace titan::dist
