// Returns the message of an exception, for tests of error messages.
#pragma once

#include <functional>
#include <string>

namespace titan::test {

// Returns the text of the E that `body` throws, or "no error" if it throws nothing.
template <typename E>
std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const E& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace titan::test
