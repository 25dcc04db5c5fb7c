// Which dataset of a weighted list each sample comes from.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace titan::data {

// A pure function of the sample number, the weights and the seed. Samples are dealt along an irrational rotation of the
// circle, not drawn at random: among any n samples in a row a dataset of share w has n * w of them, within a few.
class Mixture {
 public:
  // `weights` are positive and need not add up to 1. Throws ConfigError.
  Mixture(std::span<const double> weights, std::uint64_t seed);

  std::size_t source_of(std::int64_t sample) const;

 private:
  std::uint64_t offset_;
  std::vector<std::uint64_t> ends_;  // of all sources but the last, on a circle of 2^64
};

}  // namespace titan::data
