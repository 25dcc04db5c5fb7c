#include "kernels/portable/divisor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace titan::kernels {
namespace {

constexpr std::uint32_t kMost = Divisor::kMost;

static_assert(Divisor().quotient(kMost) == kMost);
static_assert(Divisor(kMost).quotient(kMost) == 1 && Divisor(kMost).quotient(kMost - 1) == 0);
static_assert(Divisor(128).remainder(1000, Divisor(128).quotient(1000)) == 1000 % 128);

// Returns true if the quotient and the remainder are those of the language.
bool divides(const Divisor& by, std::uint32_t divisor, std::uint32_t dividend) {
  const std::uint32_t quotient = by.quotient(dividend);
  return quotient == dividend / divisor && by.remainder(dividend, quotient) == dividend % divisor;
}

// Expects right quotients where wrong ones would appear. The inverse is rounded up, by so little that a quotient is too
// large first just below a multiple of the divisor, and the sooner, the larger the multiple.
void expect_divides(std::uint32_t divisor) {
  const Divisor by(divisor);
  const std::uint32_t multiple = kMost / divisor * divisor;
  for (const std::uint32_t dividend :
       {std::uint32_t{0}, divisor - 1, divisor, multiple - 1, multiple, kMost - 1, kMost})
    ASSERT_TRUE(divides(by, divisor, dividend)) << dividend << " / " << divisor << " is not " << by.quotient(dividend);
}

// Returns the numbers from 1 to kMost that are powers of two, or next to one.
std::vector<std::uint32_t> edges() {
  std::vector<std::uint32_t> out;
  for (std::uint32_t power = 1; power <= kMost / 2 + 1; power *= 2)
    for (const std::uint32_t number : {power - 1, power, power + 1})
      if (number > 0) out.push_back(number);
  out.insert(out.end(), {kMost / 3, kMost / 3 + 1, kMost - 2, kMost - 1, kMost});
  return out;
}

TEST(Divisor, DividesAllSmallNumbers) {
  for (std::uint32_t divisor = 1; divisor <= 1500; ++divisor) {
    const Divisor by(divisor);
    for (std::uint32_t dividend = 0; dividend <= 3000; ++dividend)
      ASSERT_TRUE(divides(by, divisor, dividend)) << dividend << " / " << divisor;
  }
}

TEST(Divisor, DividesAtTheEdges) {
  const auto numbers = edges();
  ASSERT_EQ(*std::max_element(numbers.begin(), numbers.end()), kMost);
  for (const std::uint32_t divisor : numbers) {
    expect_divides(divisor);
    for (const std::uint32_t dividend : numbers)
      ASSERT_TRUE(divides(Divisor(divisor), divisor, dividend)) << dividend << " / " << divisor;
  }
}

TEST(Divisor, DividesByEachOfManyNumbers) {
  for (std::uint32_t divisor = 1; divisor <= 1 << 18; ++divisor) expect_divides(divisor);
  std::mt19937 random(7);
  for (int i = 0; i < 1 << 18; ++i) {
    // Numbers of any length: most random ones are large.
    const std::uint32_t divisor = std::max<std::uint32_t>((random() & kMost) >> (random() % 31), 1);
    const std::uint32_t dividend = random() & kMost;
    expect_divides(divisor);
    ASSERT_TRUE(divides(Divisor(divisor), divisor, dividend)) << dividend << " / " << divisor;
  }
}

}  // namespace
}  // namespace titan::kernels
