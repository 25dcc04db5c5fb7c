// Compares the checksums of two runs: the first parameter or gradient whose bits differ.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace titan::runs {

// The first step whose checksums differ. Gradients come before the weights that they change.
struct ChecksumParting {
  std::int64_t step = 0;
  std::string kind;       // "gradient" or "weight"
  std::string parameter;  // the first in the model's order
  std::int64_t gradients_differ = 0, gradients = 0;
  std::int64_t weights_differ = 0, weights = 0;
};

struct ChecksumComparison {
  bool is_in_a = false, is_in_b = false;        // true if checksums.jsonl exists
  std::int64_t common_steps = 0;                // steps that both recorded
  std::optional<std::int64_t> last_equal = {};  // last step before the first difference
  std::optional<ChecksumParting> parting = {};
};

ChecksumComparison compare_checksums(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace titan::runs
