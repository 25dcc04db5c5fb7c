#include "checkpoint/known_steps.h"

#include <algorithm>
#include <iterator>

#include "checkpoint/dcp/step_folders.h"
#include "checkpoint/io/read_error.h"

namespace titan::checkpoint {
namespace {

// True for a complete checkpoint, and for a folder that cannot be looked at: nothing says that it is gone.
bool may_be_saved(const std::filesystem::path& folder) {
  try {
    return is_saved(folder);
  } catch (const ReadError&) {
    return true;
  }
}

std::vector<int> saved_steps(const std::filesystem::path& base) {
  std::vector<int> steps = steps_in(base);
  std::erase_if(steps, [&](int step) { return !may_be_saved(step_folder(base, step)); });
  return steps;
}

}  // namespace

void KnownSteps::learn(const std::filesystem::path& base) {
  steps_.clear();
  try {
    steps_ = saved_steps(base);
  } catch (const ReadError&) {
    return;  // the next save, which needs the folder, says why
  }
}

std::vector<int> KnownSteps::take_missing(const std::filesystem::path& base) {
  const std::vector<int> found = saved_steps(base);
  std::vector<int> missing;
  std::ranges::set_difference(steps_, found, std::back_inserter(missing));
  std::erase_if(steps_, [&](int step) { return std::ranges::binary_search(missing, step); });
  return missing;
}

}  // namespace titan::checkpoint
