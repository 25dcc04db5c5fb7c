// Time limits against hangs. They do not test speed: a busy machine may take several times as long.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

namespace titan::test {

// Returns the limit for an idle machine times TITAN_TIME_SCALE (default 5), as in tests/integration/harness.py.
inline std::chrono::milliseconds guard(double seconds) {
  const char* const scale = std::getenv("TITAN_TIME_SCALE");
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000 * (scale ? std::stod(scale) : 5)));
}

// Polls until `condition` returns something true, and returns it.
template <typename Condition>
auto wait_until(const Condition& condition, const std::string& what, double guard_seconds = 30) {
  const auto deadline = std::chrono::steady_clock::now() + guard(guard_seconds);
  for (;;) {
    if (auto found = condition()) return found;
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("waited in vain: " + what);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace titan::test
