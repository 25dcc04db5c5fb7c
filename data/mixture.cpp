#include "data/mixture.h"

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "data/permutation.h"

namespace titan::data {
namespace {

constexpr std::uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;  // of 2^64
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

MixEntry parse_mix_entry(const std::string& text) {
  const std::string expected =
      "training.dataset_mix: expected \"WEIGHT KIND PATH\", for example \"0.7 jsonl /data/web\"; found \"" + text +
      "\"";
  const auto first = text.find(' ');
  const auto second = first == std::string::npos ? first : text.find(' ', first + 1);
  if (second == std::string::npos || second == first + 1 || second + 1 == text.size()) throw ConfigError(expected);
  MixEntry entry{.kind = text.substr(first + 1, second - first - 1), .path = text.substr(second + 1)};
  const auto [end, error] = std::from_chars(text.data(), text.data() + first, entry.weight);
  if (error != std::errc() || end != text.data() + first || !(entry.weight > 0) || !std::isfinite(entry.weight)) {
    throw ConfigError(expected + ": the weight must be a positive number");
  }
  return entry;
}

}  // namespace titan::data
