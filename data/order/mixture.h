// Chooses the dataset of each sample from a weighted list.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace titan::data {

// A pure function of the sample number, the weights and the seed. Samples follow an irrational rotation of the circle
// and are not drawn at random: n consecutive samples have n * w of a dataset of share w, within a few.
class Mixture {
 public:
  // `weights` are positive and need not add up to 1. Throws ConfigError.
  Mixture(std::span<const double> weights, std::uint64_t seed);

  std::size_t source_of(std::int64_t sample) const;

 private:
  std::uint64_t offset_;
  std::vector<std::uint64_t> ends_;  // ends of the shares of all sources but the last, on a circle of 2^64
};

}  // namespace titan::data
