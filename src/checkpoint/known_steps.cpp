#include "checkpoint/known_steps.h"

#include <algorithm>
#include <iterator>

#include "base/run_layout.h"
#include "checkpoint/dcp/step_folders.h"

namespace titan::checkpoint {
namespace {

std::vector<int> complete_steps(const std::filesystem::path& base) {
  std::vector<int> steps = steps_in(base);
  std::erase_if(steps, [&](int step) { return !layout::is_complete_save(step_folder(base, step)); });
  return steps;
}

}  // namespace

void KnownSteps::learn(const std::filesystem::path& base) {
  steps_.clear();
  try {
    steps_ = complete_steps(base);
  } catch (const std::filesystem::filesystem_error&) {
    return;  // the next save, which needs the folder, says why
  }
}

std::vector<int> KnownSteps::take_missing(const std::filesystem::path& base) {
  const std::vector<int> found = complete_steps(base);
  std::vector<int> missing;
  std::ranges::set_difference(steps_, found, std::back_inserter(missing));
  std::erase_if(steps_, [&](int step) { return std::ranges::binary_search(missing, step); });
  return missing;
}

}  // namespace titan::checkpoint
