#include "distributed/shared_memory/shared_channel.h"

#include <ATen/ATen.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <random>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/process/rank_process.h"

namespace titan::dist {
namespace {

using std::chrono::steady_clock;

// Spin time before sleeping. If every rank has a core, a peer is rarely later than this; beyond it, others need the
// core.
constexpr auto kSpin = std::chrono::microseconds(30);
constexpr int kPausesBetweenLooks = 32;
// Sleep time between checks that the peer is alive.
constexpr auto kSleep = std::chrono::milliseconds(50);

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Sleeps until `word` is not `value`, ring() is called, or `time` is over. Returns true on timeout.
bool sleep_on(const std::atomic<std::uint32_t>& word, std::uint32_t value, std::chrono::nanoseconds time) {
  timespec limit{};
  limit.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(time).count();
  limit.tv_nsec = (time % std::chrono::seconds(1)).count();
  return syscall(SYS_futex, &word, FUTEX_WAIT, value, &limit, nullptr, 0) != 0 && errno == ETIMEDOUT;
}

void ring(std::atomic<std::uint32_t>& word) {
  word.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

const char* name_of(SharedKind kind) {
  switch (kind) {
    case SharedKind::kAllGather:
      return "all_gather";
    case SharedKind::kAllGatherInPlace:
      return "all_gather in place";
    case SharedKind::kReduceScatter:
      return "reduce_scatter";
    case SharedKind::kSum:
      return "all_reduce (sum)";
    case SharedKind::kMax:
      return "all_reduce (max)";
    case SharedKind::kMin:
      return "all_reduce (min)";
    case SharedKind::kBroadcast:
      return "broadcast";
    case SharedKind::kBarrier:
      return "barrier";
  }
  return "no operation";
}

std::string to_string(const SharedSignature& signature) {
  return std::string(name_of(signature.kind)) + " of " + std::to_string(signature.numel) + " elements of " +
         c10::toString(signature.dtype);
}

}  // namespace

std::string to_text(const SegmentAddress& address) {
  std::ostringstream text;
  text << address.global_rank << ' ' << address.pid << ' ' << address.descriptor << ' ' << address.capacity << ' '
       << address.mark;
  return text.str();
}

SegmentAddress segment_address_from_text(const std::string& text) {
  std::istringstream fields(text);
  SegmentAddress address{};
  fields >> address.global_rank >> address.pid >> address.descriptor >> address.capacity >> address.mark;
  TITAN_CHECK(fields, "no address of a segment: " + text);
  return address;
}

// The header at the start of a segment. Only the owner writes it.
struct SharedChannel::Header {
  struct Operation {
    SharedSignature signature;
    std::uint64_t offset;
  };
  std::uint64_t mark;
  alignas(64) std::atomic<std::uint64_t> published;  // operations
  std::atomic<std::uint32_t> bell;                   // changes after `published` did
  alignas(64) std::atomic<std::uint64_t> done;       // this rank is done with all operations before
  alignas(64) Operation operations[kMaxInFlight];    // operation n at n % kMaxInFlight
  // This rank's state of each block: the last generation that it has written, and the last that it has freed.
  struct Block {
    std::atomic<std::uint64_t> written, freed;
  };
  alignas(64) Block blocks[kMaxBlocks];
};

struct SharedChannel::Peer {
  int global_rank;
  std::shared_ptr<const SharedSegment> segment;
  RankProcess process;

  const Header& header() const { return *reinterpret_cast<const Header*>(segment->data()); }
  // The mailboxes follow the header, one for each rank.
  const Mailbox* mailboxes() const { return reinterpret_cast<const Mailbox*>(segment->data() + sizeof(Header)); }
};

// Blocks are in the second half of a segment, which other ranks may write.
std::size_t start_of_blocks(std::size_t capacity) {
  return capacity / 2 / BlockAllocator::kPage * BlockAllocator::kPage;
}

SharedOperation::~SharedOperation() { channel_->done(number_); }

SharedChannel::SharedChannel(int rank, int global_rank, std::size_t capacity)
    : rank_(rank),
      global_rank_(global_rank),
      segment_(std::make_shared<SharedSegment>(SharedSegment::create(capacity))),
      pool_(sizeof(Header), start_of_blocks(segment_->capacity())) {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);
  std::random_device random;
  auto* header = new (segment_->data()) Header{};
  header->mark = (static_cast<std::uint64_t>(random()) << 32) | random();
}

SharedChannel::~SharedChannel() = default;

SharedChannel::Header& SharedChannel::own_header() const { return *reinterpret_cast<Header*>(segment_->data()); }

const Mailbox& SharedChannel::mailbox(int owner, int other) const { return peer(owner).mailboxes()[other]; }

Mailbox& SharedChannel::own_mailbox(int other) const {
  return reinterpret_cast<Mailbox*>(segment_->data() + sizeof(Header))[other];
}

const SharedChannel::Peer& SharedChannel::peer(int rank) const { return peers_.at(static_cast<std::size_t>(rank)); }
int SharedChannel::global_rank_of(int rank) const { return peer(rank).global_rank; }
std::byte* SharedChannel::data_of(int rank) const { return peer(rank).segment->data(); }
void SharedChannel::ring_own_bell() const { ring(own_header().bell); }

SegmentAddress SharedChannel::address() const {
  return {global_rank_, getpid(), segment_->descriptor(), segment_->capacity(), own_header().mark};
}

void SharedChannel::connect(const std::vector<SegmentAddress>& addresses) {
  std::vector<std::shared_ptr<const SharedSegment>> segments;
  for (std::size_t r = 0; r < addresses.size(); ++r) {
    const auto& address = addresses[r];
    segments.push_back(static_cast<int>(r) == rank_
                           ? segment_
                           : std::make_shared<SharedSegment>(SharedSegment::open(
                                 address.pid, address.descriptor, static_cast<std::size_t>(address.capacity),
                                 start_of_blocks(static_cast<std::size_t>(address.capacity)))));
  }
  connect(addresses, segments);
}

void SharedChannel::connect(const std::vector<SegmentAddress>& addresses,
                            const std::vector<std::shared_ptr<const SharedSegment>>& segments) {
  for (std::size_t r = 0; r < addresses.size(); ++r) {
    const auto& address = addresses[r];
    Peer peer{address.global_rank, segments.at(r), process_of(address.pid)};
    if (peer.header().mark != address.mark) {
      throw DistError("process " + std::to_string(address.pid) + " is not rank " + std::to_string(address.global_rank) +
                      " here (another container?)");
    }
    peers_.push_back(std::move(peer));
  }
  const std::size_t begin = sizeof(Header) + peers_.size() * sizeof(Mailbox);
  TITAN_CHECK(begin < start_of_blocks(segment_->capacity()), "a segment too small for its ranks");
  pool_ = BlockPool(begin, start_of_blocks(segment_->capacity()));
  mail_.connect(peers_.size());
  const auto capacity = static_cast<std::size_t>(addresses.front().capacity);
  blocks_.emplace(start_of_blocks(capacity), capacity, kMaxBlocks);
}

void SharedChannel::throw_no_memory(std::size_t bytes) const {
  throw DistError("rank " + std::to_string(global_rank_) + " has no " + std::to_string(bytes) +
                  " bytes left for a collective in the " + std::to_string(segment_->capacity()) +
                  " that ranks of one host share. TITAN_SHARED_MEMORY=0 goes without");
}

std::size_t SharedChannel::take(std::size_t bytes) {
  const auto offset = pool_.take(bytes);
  if (!offset) throw_no_memory(bytes);
  return *offset;
}

at::Tensor SharedChannel::buffer(std::int64_t numel, at::ScalarType dtype) {
  const auto bytes = static_cast<std::size_t>(numel) * c10::elementSize(dtype);
  if (bytes == 0) return at::empty({numel}, dtype);
  const std::lock_guard lock(mutex_);
  reclaim();
  const auto offset = take(bytes);
  const auto give_back = [self = shared_from_this(), offset](void*) {
    const std::lock_guard guard(self->mutex_);
    self->pool_.release(offset);
  };
  return at::from_blob(segment_->data() + offset, {numel}, give_back, dtype);
}

void SharedChannel::give_back(std::size_t offset) {
  if (offset != kNoBlock) pool_.release(offset);
}

// Returns the offset of `input` in the segment, with one more user. Copies it there unless it is there and
// `may_share`.
std::size_t SharedChannel::place(const at::Tensor& input, bool may_share) {
  const auto bytes = input.nbytes();
  if (bytes == 0) return kNoBlock;
  const auto* data = static_cast<const std::byte*>(input.const_data_ptr());
  if (may_share && data >= segment_->data() && data < segment_->data() + segment_->capacity()) {
    const auto offset = static_cast<std::size_t>(data - segment_->data());
    pool_.retain(offset);
    return offset;
  }
  const auto offset = take(bytes);
  at::from_blob(segment_->data() + offset, input.sizes(), input.scalar_type()).copy_(input);
  return offset;
}

void SharedChannel::check_may_start(const SharedSignature& signature) {
  reclaim();
  if (next_ - done_by_all() < kMaxInFlight) return;
  throw InternalError("rank " + std::to_string(global_rank_) + " started " + to_string(signature) + " while " +
                      std::to_string(kMaxInFlight) +
                      " collectives of the group are not over on every rank; wait for some of them");
}

std::shared_ptr<SharedOperation> SharedChannel::announce(const SharedSignature& signature, std::size_t offset) {
  const auto number = next_++;
  auto& header = own_header();
  header.operations[number % kMaxInFlight] = {signature, offset};
  header.published.store(next_, std::memory_order_release);
  ring_own_bell();
  return std::make_shared<SharedOperation>(shared_from_this(), number, signature);
}

std::shared_ptr<SharedOperation> SharedChannel::publish(const SharedSignature& signature, const at::Tensor& input) {
  const std::lock_guard lock(mutex_);
  check_may_start(signature);
  const auto offset =
      place(input, signature.kind == SharedKind::kAllGather || signature.kind == SharedKind::kReduceScatter);
  in_flight_.push_back({next_, offset});
  return announce(signature, offset);
}

std::uint64_t SharedChannel::done_by_all() const {
  std::uint64_t least = next_;
  for (const auto& peer : peers_) least = std::min(least, peer.header().done.load(std::memory_order_acquire));
  return least;
}

void SharedChannel::reclaim() {
  const auto first_needed = done_by_all();
  while (!in_flight_.empty() && in_flight_.front().number < first_needed) {
    give_back(in_flight_.front().offset);
    in_flight_.pop_front();
  }
  mail_.reclaim();
}

std::vector<at::Tensor> SharedOperation::inputs(std::chrono::milliseconds timeout) {
  std::vector<at::Tensor> found;
  for (int r = 0; r < static_cast<int>(channel_->peers_.size()); ++r) found.push_back(input(r, timeout));
  return found;
}

at::Tensor SharedOperation::input(int rank, std::chrono::milliseconds timeout) {
  const auto where = offset(rank, timeout);
  auto* data = channel_->peers_.at(static_cast<std::size_t>(rank)).segment->data() + where;
  return at::from_blob(
      data, {signature_.numel}, [self = shared_from_this()](void*) {}, signature_.dtype);
}

std::size_t SharedOperation::offset(int rank, std::chrono::milliseconds timeout) {
  const auto& peer = channel_->peers_.at(static_cast<std::size_t>(rank));
  const auto& published = peer.header().published;
  channel_->await(peer, signature_, timeout, [&] { return published.load(std::memory_order_acquire) > number_; });
  channel_->check_same(peer, number_, signature_);
  return peer.header().operations[number_ % SharedChannel::kMaxInFlight].offset;
}

void SharedChannel::await(const Peer& peer, const SharedSignature& signature, std::chrono::milliseconds timeout,
                          const std::function<bool()>& is_there) const {
  await(
      peer, [&] { return "part in " + to_string(signature); }, timeout, is_there);
}

void SharedChannel::await(int rank, const std::function<std::string()>& what, std::chrono::milliseconds timeout,
                          const std::function<bool()>& is_there) const {
  await(peer(rank), what, timeout, is_there);
}

void SharedChannel::await(const Peer& peer, const std::function<std::string()>& what, std::chrono::milliseconds timeout,
                          const std::function<bool()>& is_there) const {
  const auto& header = peer.header();
  const auto start = steady_clock::now();
  while (!is_there() && steady_clock::now() - start < kSpin) {
    for (int i = 0; i < kPausesBetweenLooks && !is_there(); ++i) pause_core();
  }
  const auto subject = [&] {
    return "rank " + std::to_string(peer.global_rank) + ", whose " + what() + " rank " + std::to_string(global_rank_) +
           " waited for, ";
  };
  while (true) {
    const auto bell = header.bell.load(std::memory_order_acquire);
    if (is_there()) return;
    if (!sleep_on(header.bell, bell, std::min<std::chrono::nanoseconds>(kSleep, timeout))) continue;
    const Life life = life_of(peer.process);
    if (is_there()) return;  // checked after life_of(): the peer may have published before it ended
    if (life == Life::kEnded) throw PeerError(subject() + "has ended");
    if (steady_clock::now() - start > timeout) {
      throw PeerError(subject() + (life == Life::kStopped ? "was stopped by a signal and did" : "did") +
                      " not send it in " + std::to_string(timeout.count()) + " ms");
    }
  }
}

void SharedChannel::check_same(const Peer& peer, std::uint64_t number, const SharedSignature& signature) const {
  const auto& other = peer.header().operations[number % kMaxInFlight].signature;
  if (other == signature) return;
  throw DistError("ranks disagree on their collective number " + std::to_string(number) + ": rank " +
                  std::to_string(global_rank_) + " has " + to_string(signature) + ", rank " +
                  std::to_string(peer.global_rank) + " has " + to_string(other) +
                  ". All ranks must run the same program with the same configuration");
}

void SharedChannel::done(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  done_early_.insert(number);
  auto& counter = own_header().done;
  auto first = counter.load(std::memory_order_relaxed);
  while (!done_early_.empty() && *done_early_.begin() == first) {
    done_early_.erase(done_early_.begin());
    ++first;
  }
  counter.store(first, std::memory_order_release);
}

BlockPool::Stats SharedChannel::stats() const {
  const std::lock_guard lock(mutex_);
  return pool_.stats();
}

std::size_t SharedChannel::bytes_of_blocks() const {
  const std::lock_guard lock(mutex_);
  return blocks_->bytes();
}

bool SharedChannel::can_allocate(at::ScalarType dtype, std::int64_t numel) const {
  const std::lock_guard lock(mutex_);
  return blocks_->can_allocate(static_cast<std::size_t>(numel) * c10::elementSize(dtype));
}

std::shared_ptr<SharedGather> SharedChannel::gather(at::ScalarType dtype, std::int64_t numel) {
  const SharedSignature signature{SharedKind::kAllGatherInPlace, dtype, numel};
  const auto bytes = static_cast<std::size_t>(numel) * c10::elementSize(dtype);
  const std::lock_guard lock(mutex_);
  check_may_start(signature);
  const auto block = blocks_->allocate(bytes);
  if (!block) throw_no_memory(bytes);
  in_flight_.push_back({next_, kNoBlock});
  return std::make_shared<SharedGather>(shared_from_this(), announce(signature, block->offset), signature, *block);
}

void SharedChannel::free_block(const BlockAllocator::Block& block) {
  const std::lock_guard lock(mutex_);
  blocks_->free(block.number);
  auto& header = own_header();
  header.blocks[block.number].freed.store(block.generation, std::memory_order_release);
  ring_own_bell();
}

SharedGather::~SharedGather() { channel_->free_block(block_); }

at::Tensor SharedGather::output() {
  auto* data = channel_->peers_.front().segment->data() + block_.offset;
  return at::from_blob(
      data, {signature_.numel}, [self = shared_from_this()](void*) {}, signature_.dtype);
}

bool SharedGather::is_free() const {
  return std::ranges::all_of(channel_->peers_, [&](const auto& peer) { return has_freed(peer); });
}

void SharedGather::wait_until_free(std::chrono::milliseconds timeout) const {
  for (const auto& peer : channel_->peers_) channel_->await(peer, signature_, timeout, [&] { return has_freed(peer); });
}

bool SharedGather::has_freed(const SharedChannel::Peer& peer) const {
  return peer.header().blocks[block_.number].freed.load(std::memory_order_acquire) + 1 >= block_.generation;
}

void SharedGather::set_written() {
  auto& header = channel_->own_header();
  header.blocks[block_.number].written.store(block_.generation, std::memory_order_release);
  ring(header.bell);
}

void SharedGather::wait_until_whole(std::chrono::milliseconds timeout) {
  for (int r = 0; r < static_cast<int>(channel_->peers_.size()); ++r) {
    if (operation_->offset(r, timeout) == block_.offset) continue;
    throw DistError("ranks disagree where the output of " + to_string(signature_) + " lies: rank " +
                    std::to_string(channel_->peers_[static_cast<std::size_t>(r)].global_rank) + " and rank " +
                    std::to_string(channel_->global_rank_) + " have let go of gathered outputs in different orders");
  }
  for (const auto& peer : channel_->peers_) {
    const auto& written = peer.header().blocks[block_.number].written;
    channel_->await(peer, signature_, timeout,
                    [&] { return written.load(std::memory_order_acquire) >= block_.generation; });
  }
  operation_.reset();
}

}  // namespace titan::dist
