// Starts threads, with an error that says which thread could not be started and why.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/limits/system_limits.h"

namespace titan {

// Returns a thread that runs `body`. Throws Error if the system refuses it. `purpose` completes "the thread that ...".
template <typename Body>
std::thread start_thread(const std::string& purpose, Body&& body) {
  try {
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    throw Error("cannot start the thread that " + purpose + ": " + message_of_error(error), kExitFailed);
  }
}

// Returns `count` threads that run `body`, or as many as the system gives: for work that any number of threads can
// share. `body` must stay alive until they are joined.
template <typename Body>
std::vector<std::thread> start_threads(std::int64_t count, const Body& body) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(count));
  try {
    while (std::ssize(threads) < count) threads.emplace_back(std::cref(body));
  } catch (const std::system_error&) {  // these are enough
  }
  return threads;
}

}  // namespace titan
