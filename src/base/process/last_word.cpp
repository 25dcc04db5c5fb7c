#include "base/process/last_word.h"

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace titan {
namespace {

constexpr int kPatienceMs = 5000;

// Signal handlers may touch lock-free atomics only.
std::atomic<std::int64_t> g_ending = 0;  // 0: none; else 1 + cause in the upper half, number in the lower
std::atomic<bool> g_is_told = false;
std::atomic<bool> g_has_teller = false;
std::atomic<pid_t> g_teller = 0;  // 0: ending_to_tell() has not been called yet
static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

std::int64_t encode(Ending ending) {
  return (std::int64_t{1} + static_cast<int>(ending.cause)) << 32 | static_cast<std::uint32_t>(ending.number);
}

}  // namespace

void expect_teller(bool is_there) { g_has_teller = is_there; }
bool is_teller_expected() { return g_has_teller; }

// The teller may need a lock that this thread holds, so the wait is limited.
void let_it_be_told(Ending ending) {
  if (!g_has_teller || g_teller == ::gettid()) return;
  std::int64_t none = 0;
  g_ending.compare_exchange_strong(none, encode(ending));
  const timespec pause{0, 1'000'000};
  for (int i = 0; i < kPatienceMs && !g_is_told; ++i) ::nanosleep(&pause, nullptr);
}

std::optional<Ending> ending_under_way() {
  const std::int64_t code = g_ending;
  if (code == 0) return std::nullopt;
  return Ending{static_cast<Ending::Cause>((code >> 32) - 1), static_cast<int>(code & 0xffffffff)};
}

std::optional<Ending> ending_to_tell() {
  g_teller = ::gettid();
  return ending_under_way();
}

void ending_is_told() { g_is_told = true; }

}  // namespace titan
