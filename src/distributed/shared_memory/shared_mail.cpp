#include "distributed/shared_memory/shared_mail.h"

#include <ATen/ATen.h>

#include <memory>
#include <mutex>
#include <string>

#include "base/error.h"
#include "distributed/shared_memory/shared_channel.h"

namespace titan::dist {

bool SharedMail::is_read(int by, std::uint64_t number) const {
  const auto& mailbox = channel_.mailbox(by, channel_.rank_);
  return mailbox.read[number % Mailbox::kMost].load(std::memory_order_acquire) > number;
}

void SharedMail::reclaim() {
  for (std::size_t to = 0; to < peers_.size(); ++to) {
    std::erase_if(peers_[to].in_flight, [&](const InFlight& message) {
      const bool is_over = is_read(static_cast<int>(to), message.number);
      if (is_over) channel_.give_back(message.offset);
      return is_over;
    });
  }
}

void SharedMail::send(const at::Tensor& tensor, int to) {
  const std::lock_guard lock(channel_.mutex_);
  channel_.reclaim();
  Peer& peer = peers_.at(static_cast<std::size_t>(to));
  const auto number = peer.sent;
  if (!peer.in_flight.empty() && number - peer.in_flight.front().number >= Mailbox::kMost) {
    throw InternalError("rank " + std::to_string(channel_.global_rank_) + " sent rank " +
                        std::to_string(channel_.global_rank_of(to)) + " a message while it has not received " +
                        std::to_string(Mailbox::kMost) + " earlier ones; let it receive some of them first");
  }
  const auto offset = channel_.place(tensor, /*may_share=*/true);
  peer.in_flight.push_back({number, offset});
  ++peer.sent;
  auto& mailbox = channel_.own_mailbox(to);
  mailbox.letters[number % Mailbox::kMost] = {tensor.nbytes(), offset};
  mailbox.sent.store(peer.sent, std::memory_order_release);
  channel_.ring_own_bell();
}

SharedMail::Wait SharedMail::receive(const at::Tensor& tensor, int from) {
  const std::lock_guard lock(channel_.mutex_);
  const auto number = peers_.at(static_cast<std::size_t>(from)).received++;
  return [this, self = channel_.shared_from_this(), tensor, from, number](auto timeout) {
    take(tensor, from, number, timeout);
  };
}

void SharedMail::take(const at::Tensor& tensor, int from, std::uint64_t number, std::chrono::milliseconds timeout) {
  const auto& mailbox = channel_.mailbox(from, channel_.rank_);
  const auto what = [&] { return "message of " + std::to_string(tensor.nbytes()) + " bytes"; };
  channel_.await(from, what, timeout, [&] { return mailbox.sent.load(std::memory_order_acquire) > number; });
  const auto& letter = mailbox.letters[number % Mailbox::kMost];
  if (letter.bytes != tensor.nbytes()) {
    throw DistError("ranks disagree on their message number " + std::to_string(number) + ": rank " +
                    std::to_string(channel_.global_rank_of(from)) + " sent " + std::to_string(letter.bytes) +
                    " bytes, rank " + std::to_string(channel_.global_rank_) + " receives " +
                    std::to_string(tensor.nbytes()));
  }
  if (letter.bytes > 0) {
    auto target = tensor.view(-1);
    target.copy_(at::from_blob(channel_.data_of(from) + letter.offset, target.sizes(), target.scalar_type()));
  }
  channel_.own_mailbox(from).read[number % Mailbox::kMost].store(number + 1, std::memory_order_release);
}

}  // namespace titan::dist
