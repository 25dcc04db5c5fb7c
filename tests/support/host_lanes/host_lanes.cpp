#include "tests/support/host_lanes/host_lanes.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <thread>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// ThreadSanitizer must not see what the scheduler does in the name of a fiber: only kernels are checked.
#define TITAN_UNSEEN __attribute__((no_sanitize_thread))

namespace titan::test {
namespace {

constexpr unsigned kWarp = 32, kThreadsOfHost = 2;
constexpr std::size_t kStackBytes = std::size_t{128} << 10;

enum class State : std::uint8_t { kReady, kAtBarrier, kInShuffle, kEnded };

struct Lane {
  ucontext_t context;
  State state;
  unsigned barriers;   // that it has come to
  float given, taken;  // by a shuffle
  int apart;           // of the shuffle
  std::byte* stack;
  void *of_thread_sanitizer, *of_address_sanitizer;
};

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "host_lanes: %s\n", what);
  std::abort();
}

// One thread of the host, which runs blocks one after another.
class BlockRunner {
 public:
  BlockRunner(const LaunchShape& shape, const std::function<void()>& body);
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;

  void run(unsigned block);

  // These concern the lane that runs.
  TITAN_UNSEEN unsigned lane() const { return running_; }
  TITAN_UNSEEN unsigned block() const { return block_; }
  TITAN_UNSEEN unsigned num_blocks() const { return shape_.blocks; }
  void wait_for_block();
  float shuffle(float value, int apart);

 private:
  static void enter();
  void resume(unsigned lane);
  void pause(State state);
  bool wake();
  bool shuffle_warp(unsigned first);

  LaunchShape shape_;
  const std::function<void()>& body_;
  Lane* lanes_;
  unsigned* order_;
  std::byte* stacks_;
  ucontext_t own_context_ = {};
  unsigned block_ = 0, running_ = 0;
  std::mt19937 random_{7};
  void *of_thread_sanitizer_ = nullptr, *of_address_sanitizer_ = nullptr;
  const void* own_stack_ = nullptr;
  std::size_t own_stack_bytes_ = 0;
  char started_ = 0, ended_ = 0, barriers_[2] = {};  // addresses that ThreadSanitizer orders threads by
};

thread_local BlockRunner* g_runner = nullptr;

// Everything that this thread did before is ordered before what a thread does after acquire() of the same address.
TITAN_UNSEEN void release([[maybe_unused]] char* order) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(order);
#endif
}
TITAN_UNSEEN void acquire([[maybe_unused]] char* order) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(order);
#endif
}

BlockRunner::BlockRunner(const LaunchShape& shape, const std::function<void()>& body)
    : shape_(shape), body_(body), lanes_(new Lane[shape.threads]()), order_(new unsigned[shape.threads]) {
  void* const stacks = ::mmap(nullptr, shape.threads * kStackBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) fail("no memory for the stacks of a block");
  stacks_ = static_cast<std::byte*>(stacks);
  for (unsigned i = 0; i < shape.threads; ++i) {
    order_[i] = i;
    lanes_[i].stack = stacks_ + i * kStackBytes;
#if defined(__SANITIZE_THREAD__)
    lanes_[i].of_thread_sanitizer = __tsan_create_fiber(0);
#endif
  }
#if defined(__SANITIZE_THREAD__)
  of_thread_sanitizer_ = __tsan_get_current_fiber();
#endif
  g_runner = this;
}

BlockRunner::~BlockRunner() {
#if defined(__SANITIZE_THREAD__)
  for (unsigned i = 0; i < shape_.threads; ++i) __tsan_destroy_fiber(lanes_[i].of_thread_sanitizer);
#endif
  ::munmap(stacks_, shape_.threads * kStackBytes);
  delete[] order_;
  delete[] lanes_;
  g_runner = nullptr;
}

TITAN_UNSEEN void BlockRunner::run(unsigned block) {
  block_ = block;
  std::shuffle(order_, order_ + shape_.threads, random_);
  const auto shared = dynamic_shared_memory();
  if (shape_.shared > shared.size_bytes()) fail("dynamic_shared_memory() is too small");
  std::ranges::fill(shared.first(shape_.shared / sizeof(float)), std::numeric_limits<float>::quiet_NaN());
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(reinterpret_cast<char*>(shared.data()) + shape_.shared,
                            shared.size_bytes() - shape_.shared);
#endif
  for (unsigned i = 0; i < shape_.threads; ++i) {
    Lane& lane = lanes_[i];
    ::getcontext(&lane.context);
    lane.context.uc_stack.ss_sp = lane.stack;
    lane.context.uc_stack.ss_size = kStackBytes;
    lane.context.uc_link = nullptr;
    ::makecontext(&lane.context, &BlockRunner::enter, 0);
    lane.state = State::kReady;
    lane.barriers = 0;
  }
  release(&started_);
  do {
    for (unsigned i = 0; i < shape_.threads; ++i)
      if (lanes_[order_[i]].state == State::kReady) resume(order_[i]);
  } while (wake());
  acquire(&ended_);
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(shared.data(), shared.size_bytes());
#endif
}

// The first function of a fiber.
TITAN_UNSEEN void BlockRunner::enter() {
  BlockRunner& runner = *g_runner;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &runner.own_stack_, &runner.own_stack_bytes_);
#endif
  acquire(&runner.started_);
  runner.body_();
  release(&runner.ended_);
  runner.pause(State::kEnded);
}

TITAN_UNSEEN void BlockRunner::resume(unsigned index) {
  Lane& lane = lanes_[index];
  running_ = index;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&of_address_sanitizer_, lane.stack, kStackBytes);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(lane.of_thread_sanitizer, __tsan_switch_to_fiber_no_sync);
#endif
  ::swapcontext(&own_context_, &lane.context);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(of_address_sanitizer_, nullptr, nullptr);
#endif
}

// Lets the scheduler go on. Returns when it resumes this lane.
TITAN_UNSEEN void BlockRunner::pause(State state) {
  Lane& lane = lanes_[running_];
  lane.state = state;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(state == State::kEnded ? nullptr : &lane.of_address_sanitizer, own_stack_,
                                 own_stack_bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(of_thread_sanitizer_, __tsan_switch_to_fiber_no_sync);
#endif
  ::swapcontext(&lane.context, &own_context_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(lane.of_address_sanitizer, nullptr, nullptr);
#endif
}

// Two addresses take turns: a lane may come to the next barrier before another has left this one.
TITAN_UNSEEN void BlockRunner::wait_for_block() {
  char* const barrier = &barriers_[lanes_[running_].barriers++ % 2];
  release(barrier);
  pause(State::kAtBarrier);
  acquire(barrier);
}

TITAN_UNSEEN float BlockRunner::shuffle(float value, int apart) {
  Lane& lane = lanes_[running_];
  lane.given = value;
  lane.apart = apart;
  pause(State::kInShuffle);
  return lane.taken;
}

// Exchanges the values of a warp, and returns true, if all of it is in one shuffle.
TITAN_UNSEEN bool BlockRunner::shuffle_warp(unsigned first) {
  const unsigned count = std::min(kWarp, shape_.threads - first);
  for (unsigned i = first; i < first + count; ++i) {
    if (lanes_[i].state != State::kInShuffle) return false;
    if (lanes_[i].apart != lanes_[first].apart) fail("the threads of a warp are in different shuffles");
  }
  for (unsigned i = 0; i < count; ++i) {
    const unsigned other = i ^ static_cast<unsigned>(lanes_[first].apart);
    lanes_[first + i].taken = lanes_[first + (other < count ? other : i)].given;
    lanes_[first + i].state = State::kReady;
  }
  return true;
}

// Makes ready what can go on; returns false if all lanes have ended.
TITAN_UNSEEN bool BlockRunner::wake() {
  bool woken = false;
  for (unsigned first = 0; first < shape_.threads; first += kWarp) woken = shuffle_warp(first) || woken;
  unsigned ended = 0, waiting = 0;
  for (unsigned i = 0; i < shape_.threads; ++i) {
    ended += lanes_[i].state == State::kEnded;
    waiting += lanes_[i].state == State::kAtBarrier;
  }
  if (woken) return true;
  if (ended == shape_.threads) return false;
  if (ended > 0) fail("threads of a block wait for others that have ended");
  if (waiting < shape_.threads) fail("threads of a block wait at a barrier for others in a shuffle");
  for (unsigned i = 0; i < shape_.threads; ++i) lanes_[i].state = State::kReady;
  return true;
}

}  // namespace

// Neighboring blocks run on different threads of the host, which nothing orders.
void run_kernel(const LaunchShape& shape, const std::function<void()>& body) {
  std::thread threads[kThreadsOfHost];
  for (unsigned first = 0; first < kThreadsOfHost; ++first)
    threads[first] = std::thread([&shape, &body, first] {
      if (first >= shape.blocks) return;
      BlockRunner runner(shape, body);
      for (unsigned block = first; block < shape.blocks; block += kThreadsOfHost) runner.run(block);
    });
  for (std::thread& thread : threads) thread.join();
}

TITAN_UNSEEN unsigned thread_index() { return g_runner->lane(); }
TITAN_UNSEEN unsigned block_index() { return g_runner->block(); }
TITAN_UNSEEN unsigned num_blocks() { return g_runner->num_blocks(); }
TITAN_UNSEEN void sync_block() { g_runner->wait_for_block(); }
TITAN_UNSEEN float shuffled(float value, int apart) { return g_runner->shuffle(value, apart); }

}  // namespace titan::test
