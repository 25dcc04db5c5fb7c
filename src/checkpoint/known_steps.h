// The checkpoints that a run knows to be in its folder: notices that something else has removed some.
#pragma once

#include <filesystem>
#include <vector>

namespace titan::checkpoint {

// For rank 0, one thread at a time.
class KnownSteps {
 public:
  // Takes the complete checkpoints that `base` holds now as known; none if it cannot be read. Call after each change
  // that the run itself makes.
  void learn(const std::filesystem::path& base);

  // Returns the known steps that `base` does not hold any more, and forgets them. A folder that cannot be looked at is
  // there. Throws ReadError if `base` cannot be listed.
  std::vector<int> take_missing(const std::filesystem::path& base);

  const std::vector<int>& steps() const { return steps_; }  // ascending

 private:
  std::vector<int> steps_;
};

}  // namespace titan::checkpoint
