#include "pipeline/nearest_numbers.h"

#include <algorithm>

namespace titan::pipeline {

std::string nearest_multiples(std::int64_t number, std::int64_t step) {
  const std::int64_t below = number / step * step;
  return (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(below + step);
}

std::string nearest_divisors(std::int64_t number, std::int64_t wanted) {
  std::int64_t below = 1, above = number;
  const auto take = [&](std::int64_t divisor) {
    if (divisor <= wanted) below = std::max(below, divisor);
    if (divisor >= wanted) above = std::min(above, divisor);
  };
  for (std::int64_t i = 1; i <= number / i; ++i) {
    if (number % i != 0) continue;
    take(i);
    take(number / i);
  }
  return std::to_string(below) + (wanted > number ? " at most" : " or " + std::to_string(above));
}

}  // namespace titan::pipeline
