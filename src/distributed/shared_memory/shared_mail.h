// Messages from one rank of a host to another, in the memory of the sender.
//
// The sender copies a tensor into its segment, or leaves it where it is if it is there, and is done. The receiver
// copies it out when it waits, and reports that. Between two ranks, the n-th message sent is the n-th received.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

namespace titan::dist {

class SharedChannel;

// Holds what a rank shares with one other rank, in its segment: the messages to it, and which of its messages were
// read. Only the owner of the segment writes it; all zero at first.
struct Mailbox {
  static constexpr std::uint64_t kMost = 1024;  // messages in flight
  struct Letter {
    std::uint64_t bytes;
    std::uint64_t offset;  // in the segment
  };
  alignas(64) std::atomic<std::uint64_t> sent;  // messages
  alignas(64) Letter letters[kMost];            // message n at n % kMost
  // n + 1 once the other rank's message n was read, at n % kMost.
  alignas(64) std::atomic<std::uint64_t> read[kMost];
};

// The messages of one rank. Thread-safe.
class SharedMail {
 public:
  // Call it at most once. Throws PeerError if the other rank has ended or `timeout` passed, DistError if its message
  // has another size.
  using Wait = std::function<void(std::chrono::milliseconds timeout)>;

  // `channel` owns this.
  explicit SharedMail(SharedChannel& channel) : channel_(channel) {}
  // Call before all others, with the number of ranks.
  void connect(std::size_t ranks) { peers_.resize(ranks); }

  // Sends a contiguous tensor. If it is in a buffer() of the channel, it is not copied, and must not be written from
  // here on. Throws InternalError if kMost messages to the rank are in flight, DistError if there is not enough memory.
  void send(const at::Tensor& tensor, int to);
  // Returns a function that waits for the next message of a rank and copies it to `tensor` (contiguous).
  Wait receive(const at::Tensor& tensor, int from);

  // Gives the memory of messages that were read back to the channel. The caller holds the channel's lock.
  void reclaim();

 private:
  struct InFlight {
    std::uint64_t number;
    std::size_t offset;
  };
  struct Peer {
    std::uint64_t sent = 0, received = 0;  // numbers of the next ones
    std::deque<InFlight> in_flight;        // messages to it that it has not read
  };

  bool is_read(int by, std::uint64_t number) const;
  void take(const at::Tensor& tensor, int from, std::uint64_t number, std::chrono::milliseconds timeout);

  SharedChannel& channel_;
  std::vector<Peer> peers_;  // guarded by the channel's lock
};

}  // namespace titan::dist
