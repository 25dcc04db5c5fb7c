#include "data/order/mixture.h"

#include <cmath>

#include "base/error.h"
#include "data/io/hash.h"
#include "data/order/permutation.h"

namespace titan::data {
namespace {

constexpr std::uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;  // 2^64 divided by the golden ratio
constexpr std::uint64_t kMixtureKey = 0x6d69787475726521;

}  // namespace

Mixture::Mixture(std::span<const double> weights, std::uint64_t seed) : offset_(mix_bits(seed ^ kMixtureKey)) {
  TITAN_CHECK(!weights.empty(), "a mixture of nothing");
  double total = 0;
  for (const double weight : weights) {
    if (!(weight > 0) || !std::isfinite(weight)) throw ConfigError("the weight of a dataset must be a positive number");
    total += weight;
  }
  double sum = 0;
  for (std::size_t i = 0; i + 1 < weights.size(); ++i) {
    sum += weights[i];
    ends_.push_back(static_cast<std::uint64_t>(std::ldexp(std::min(sum / total, 1 - 1e-15), 64)));
  }
}

std::size_t Mixture::source_of(std::int64_t sample) const {
  const std::uint64_t point = offset_ + static_cast<std::uint64_t>(sample) * kGoldenRatio;
  std::size_t source = 0;
  while (source < ends_.size() && point >= ends_[source]) ++source;
  return source;
}

}  // namespace titan::data
