#include "tests/support/simulated_device/state.h"

#include <ATen/Context.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <new>
#include <thread>

#include "base/env.h"
#include "base/error.h"
#include "base/process/phase.h"
#include "base/stack/stack.h"

namespace titan::sim {
namespace {

thread_local StreamId g_current_stream = 0;

// Size of one pool, in addresses that take memory only when they are written.
constexpr std::size_t kPoolBytes = std::size_t{8} << 30;

// Lets the host wait as long as the variable says, for a device that is still at work on the steps that it was given.
void work_for_a_while() {
  const char* const milliseconds = std::getenv("SIMULATED_WORK_MS");
  if (milliseconds) std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(milliseconds)));
}

std::string this_thread() {
  if (::gettid() == ::getpid()) return "train";
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return std::string(name).starts_with("pt_autograd") ? "autograd" : "background";
}

}  // namespace

StreamId current_stream() { return g_current_stream; }

StreamId exchange_current_stream(StreamId stream) { return std::exchange(g_current_stream, stream); }

// The variable names the allocator's two ways, as PYTORCH_ALLOC_CONF does.
State::State() : pools_(get_env("SIMULATED_SEGMENTS").value_or("fixed") == "expandable") {}

State& State::get() {
  static State* const state = [] {
    auto* made = new State();  // never destroyed: static tensors may outlive it
    made->new_stream("compute");
    return made;
  }();
  return *state;
}

StreamId State::new_stream(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return order_.new_stream(name);
}

Clock State::record(StreamId stream) {
  const std::lock_guard lock(mutex_);
  return order_.record(stream);
}

Clock State::record_all() {
  const std::lock_guard lock(mutex_);
  Clock all;
  for (StreamId stream = 0; stream < order_.num_streams(); ++stream) all.join(order_.record(stream));
  return all;
}

void State::stream_waits(StreamId stream, const Clock& event) {
  const std::lock_guard lock(mutex_);
  order_.stream_waits(stream, event);
}

void State::synchronize(const Clock& event, const std::string& why) {
  if (phase_log().current() == Phase::kDevice) work_for_a_while();
  const std::lock_guard lock(mutex_);
  order_.host_waits(event);
  found_.synchronizations.push_back(
      {why, this_thread(), std::string(name_of(phase_log().current())), phase_log().step(), to_text(capture_stack())});
}

void State::queue(StreamId stream, const std::string& name, const std::vector<Use>& uses) {
  const std::lock_guard lock(mutex_);
  ++current_step().kernels[name];
  check_reusable(stream);
  note_all(order_.queue(stream), stream, name, uses);
}

void State::touch_by_host(const std::string& name, const std::vector<Use>& uses) {
  const std::lock_guard lock(mutex_);
  note_all({}, kHost, name, uses);
}

void State::note_all(const Moment& moment, StreamId stream, const std::string& name, const std::vector<Use>& uses) {
  for (const Use& use : uses) {
    if (use.bytes.begin == use.bytes.end) continue;
    Access access{.bytes = use.bytes,
                  .writes = use.writes,
                  .moment = moment,
                  .stream = stream,
                  .block = block_at(use.bytes.begin),
                  .what = name + ", " + use.role};
    for (const Race& race : accesses_.add(order_, std::move(access))) tell(race.text(order_));
  }
}

void State::tell(std::string race) {
  if (told_.insert(race).second) found_.races.push_back(std::move(race));
}

// Reports uses of freed blocks that are not ordered before what the stream queues now, into memory that it allocated
// since: a block of another size, or another pool, only happens to be given out later. A stream may wait between the
// allocation and its first work, as fully_shard's do.
void State::check_reusable(StreamId stream) {
  const auto found = reusable_in_use_.find(stream);
  if (found == reusable_in_use_.end()) return;
  for (const Access& access : found->second)
    if (!order_.is_over_for(access.moment, stream))
      tell("memory of stream " + order_.name(stream) +
           " was freed while another stream may still use it, and may be given out again: " + text_of(access, order_));
  reusable_in_use_.erase(found);
}

// Returns the id of the block at `address`, 0 for host memory.
std::size_t State::block_at(Address address) const {
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return 0;
  const auto& [begin, block] = *std::prev(after);
  return address < begin + static_cast<Address>(block.bytes) ? block.id : 0;
}

Address State::base_of(const train::CachingPools::Block& block) {
  Address& base = bases_[{block.stream, block.is_small}];
  if (base == 0) {
    void* const memory =
        ::mmap(nullptr, kPoolBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    base = reinterpret_cast<Address>(memory);
  }
  TITAN_CHECK(static_cast<std::size_t>(block.begin + block.bytes) <= kPoolBytes, "the simulated device is full");
  return base;
}

void* State::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  const std::size_t id = next_id_++;
  const auto block = pools_.allocate(id, static_cast<std::int64_t>(bytes), current_stream());
  const Address address = base_of(block) + static_cast<Address>(block.begin);
  auto& in_use = freed_in_use_[current_stream()];
  std::ranges::move(in_use, std::back_inserter(reusable_in_use_[current_stream()]));
  in_use.clear();
  blocks_[address] = {id, block.bytes, current_memory_use(), current_stream()};
  live_by_use_[current_memory_use()] += block.bytes;
  found_.live_bytes += block.bytes;
  note_peak();
  return reinterpret_cast<void*>(address);
}

void State::free(void* pointer) {
  if (!pointer) return;
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(reinterpret_cast<Address>(pointer));
  const Block block = found->second;
  const Bytes bytes{found->first, found->first + static_cast<Address>(block.bytes)};
  for (Access& access : accesses_.open(order_, bytes, block.stream))
    freed_in_use_[block.stream].push_back(std::move(access));
  blocks_.erase(found);
  live_by_use_[block.use] -= block.bytes;
  found_.live_bytes -= block.bytes;
  pools_.free(block.id);
}

void State::note_peak() {
  found_.peak_reserved_bytes = pools_.reserved();
  found_.peak_live_bytes = std::max(found_.peak_live_bytes, found_.live_bytes);
  StepFindings& step = current_step();
  step.peak_live_bytes = std::max(step.peak_live_bytes, found_.live_bytes);
  for (const auto& [use, bytes] : live_by_use_) step.most_by_use[use] = std::max(step.most_by_use[use], bytes);
}

StepFindings& State::current_step() {
  const auto phase = phase_log().current();
  const bool is_within = phase == Phase::kStep || phase == Phase::kOptimizer;
  return found_.steps[is_within ? phase_log().step() : 0];
}

void* State::allocate_pinned(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* const memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (!memory) throw std::bad_alloc();
  const std::lock_guard lock(mutex_);
  pinned_[reinterpret_cast<Address>(memory)] = bytes;
  ++found_.num_pinned_allocations;
  return memory;
}

// Needs no check: a caching host allocator waits for copies of the memory before it reuses it.
void State::free_pinned(void* pointer) {
  if (!pointer) return;
  const std::lock_guard lock(mutex_);
  const auto found = pinned_.find(reinterpret_cast<Address>(pointer));
  accesses_.forget({found->first, found->first + found->second});
  pinned_.erase(found);
  std::free(pointer);
}

bool State::is_pinned(const void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<Address>(pointer);
  const auto after = pinned_.upper_bound(address);
  return after != pinned_.begin() && address < std::prev(after)->first + std::prev(after)->second;
}

void State::note_connection() {
  const std::lock_guard lock(mutex_);
  found_.deterministic_when_connected = at::globalContext().deterministicAlgorithms();
  const auto variable = [](const char* name) {
    const char* const text = std::getenv(name);
    return std::string(text ? text : "");
  };
  found_.dump_patience = variable("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC");
  found_.algorithms = variable("NCCL_ALGO");
}

Findings State::findings() {
  const std::lock_guard lock(mutex_);
  return found_;
}

void State::reset() {
  const std::lock_guard lock(mutex_);
  const auto live = found_.live_bytes;
  found_ = {};
  found_.live_bytes = found_.peak_live_bytes = live;
  found_.steps[0] = {.kernels = {}, .peak_live_bytes = live, .most_by_use = live_by_use_};
  found_.peak_reserved_bytes = pools_.reserved();
  told_.clear();
}

Findings findings() { return State::get().findings(); }
void reset() { State::get().reset(); }

}  // namespace titan::sim
