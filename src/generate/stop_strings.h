// Cuts a text before the first of some strings while it arrives. The first is the one that ends first, so that the
// pieces in which a text arrives make no difference.
#pragma once

#include <string>
#include <vector>

namespace titan::generate {

class StopStrings {
 public:
  // `strings` are not empty. Without any, all text passes at once.
  explicit StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {}

  // Returns the text that can no longer be part of a stop string. After found(), it is empty.
  std::string add(const std::string& piece);
  // Returns the rest at the end of the text: empty after found().
  std::string finish();
  // True if a stop string has arrived.
  bool found() const { return found_; }

 private:
  std::vector<std::string> strings_;
  std::string held_;  // the end of the text, which may begin a stop string
  bool found_ = false;
};

}  // namespace titan::generate
