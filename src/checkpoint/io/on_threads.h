// Runs the same function on several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <future>
#include <vector>

namespace titan::checkpoint {

// Policy of std::async: a thread of its own or, if the system refuses one, the thread that waits for the result.
inline constexpr auto kBesideOrLater = std::launch::async | std::launch::deferred;

// Calls work(i) for every i < count, on at most `threads` threads at a time. After an error no further i is started,
// and the first thread's error is thrown when all threads have stopped. Uses fewer threads, if need be only the calling
// one, if the system refuses more.
template <typename Work>
void on_threads(std::size_t threads, std::size_t count, const Work& work) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::future<void>> running;
  const auto run = [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      next = count;
      throw;
    }
  };
  for (std::size_t i = 0; i < std::min(threads, count); ++i) running.push_back(std::async(kBesideOrLater, run));
  for (auto& each : running) each.wait();
  for (auto& each : running) each.get();
}

}  // namespace titan::checkpoint
