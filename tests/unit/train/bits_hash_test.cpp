#include "train/guests/numerics/bits_hash.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <set>

namespace titan::train {
namespace {

constexpr std::int64_t kElementsOfPart = std::int64_t{1} << 15;  // float32, on the host

std::int64_t hash(const at::Tensor& tensor) {
  BitsHash bits_hash;
  return bits_hash(tensor).item<std::int64_t>();
}

at::Tensor some_numbers(at::IntArrayRef shape) { return at::randn(shape, at::detail::createCPUGenerator(7)); }

TEST(BitsHash, EveryBitCounts) {
  const auto tensor = some_numbers({3, 5});  // 60 bytes: the last word is not full
  std::set<std::int64_t> seen = {hash(tensor)};
  for (std::int64_t byte = 0; byte < 60; ++byte)
    for (int bit = 0; bit < 8; ++bit) {
      auto other = tensor.clone();
      other.view({-1}).view(at::kByte)[byte].bitwise_xor_(1 << bit);
      EXPECT_TRUE(seen.insert(hash(other)).second) << "bit " << bit << " of byte " << byte;
    }
}

TEST(BitsHash, SignsCountTogetherToo) {
  const auto tensor = some_numbers({4, 4});
  auto two = tensor.clone();
  two.view({-1})[1].neg_();
  two.view({-1})[3].neg_();
  const std::set<std::int64_t> seen = {hash(tensor), hash(-tensor), hash(two)};
  EXPECT_EQ(seen.size(), 3);
}

TEST(BitsHash, EveryPlaceOfSeveralPartsCounts) {
  const auto tensor = at::zeros({2 * kElementsOfPart + 7});
  std::set<std::int64_t> seen = {hash(tensor)};
  for (const auto place : {std::int64_t{0}, std::int64_t{2}, kElementsOfPart - 1, kElementsOfPart, kElementsOfPart + 2,
                           2 * kElementsOfPart, 2 * kElementsOfPart + 6}) {
    auto other = tensor.clone();
    other[place] = 1;
    EXPECT_TRUE(seen.insert(hash(other)).second) << place;
  }
}

// Copies of a tensor may lie elsewhere, and in a larger tensor.
TEST(BitsHash, OnlyTheBitsCount) {
  const auto tensor = some_numbers({6, 11});
  auto longer = at::empty({1 + 66});
  auto inside = longer.narrow(0, 1, 66).view({6, 11});  // not at a word
  inside.copy_(tensor);
  EXPECT_EQ(hash(inside), hash(tensor));
  EXPECT_EQ(hash(tensor.t().contiguous().t()), hash(tensor));
  EXPECT_NE(hash(tensor.t().contiguous()), hash(tensor));
  EXPECT_NE(hash(-at::zeros({4})), hash(at::zeros({4})));
}

// Sizes around words and parts, also in memory that does not begin at a word.
TEST(BitsHash, TheKernelsHashIsThatOfTheOperators) {
  BitsHash by_kernel, by_operators(/*plain=*/true);
  const std::int64_t part = 4 * kElementsOfPart;  // bytes
  const auto bytes = some_numbers({kElementsOfPart * 2 + 9}).view({-1}).view(at::kByte);
  for (const std::int64_t begin : {0, 3})
    for (const std::int64_t size : {std::int64_t{1}, std::int64_t{7}, std::int64_t{8}, std::int64_t{9},
                                    std::int64_t{200}, part - 1, part, part + 1, part + 8, 2 * part, 2 * part + 13}) {
      const auto some = bytes.narrow(0, begin, size);
      EXPECT_EQ(by_kernel(some).item<std::int64_t>(), by_operators(some).item<std::int64_t>()) << begin << ", " << size;
    }
}

TEST(BitsHash, TakesEveryDtypeAndSize) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kChar}) {
    for (const auto& shape : std::vector<std::vector<std::int64_t>>{{}, {1}, {3}, {4, 4}}) {
      const auto tensor = at::ones(shape, dtype);
      auto other = tensor.clone();
      other.view({-1})[0] = 2;
      EXPECT_EQ(hash(tensor.clone()), hash(tensor)) << dtype;
      EXPECT_NE(hash(other), hash(tensor)) << dtype;
    }
  }
  EXPECT_EQ(hash(at::empty({0, 5})), 0);
}

}  // namespace
}  // namespace titan::train
