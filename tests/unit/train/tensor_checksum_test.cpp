#include "train/guests/tensor_checksum.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>

namespace titan::train {
namespace {

std::int64_t sum_of(const at::Tensor& local, const dist::ShardSpec& spec) {
  return tensor_checksum(local, spec, at::kCPU).item<std::int64_t>();
}

std::int64_t whole(const at::Tensor& tensor) {
  return sum_of(tensor, dist::ShardSpec::replicated(tensor.sizes().vec()));
}

// Returns the checksum of the box [offset, offset + shape) of the tensor.
std::int64_t part(const at::Tensor& tensor, std::vector<std::int64_t> offset, std::vector<std::int64_t> shape) {
  at::Tensor box = tensor;
  for (std::size_t d = 0; d < shape.size(); ++d) box = box.narrow(static_cast<std::int64_t>(d), offset[d], shape[d]);
  return sum_of(box, {tensor.sizes().vec(), std::move(offset), std::move(shape)});
}

at::Tensor random(at::IntArrayRef shape) { return at::randn(shape, at::detail::createCPUGenerator(7)); }

// Computes the header's definition, one element at a time.
std::uint64_t reference(const at::Tensor& tensor) {
  const auto flat = tensor.contiguous().flatten();
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    const auto bits = static_cast<std::uint64_t>(std::int64_t{std::bit_cast<std::int32_t>(flat[i].item<float>())});
    std::uint64_t x = (bits + 1) * 0x9E3779B97F4A7C15U ^ (static_cast<std::uint64_t>(i) + 1) * 0xD1B54A32D192ED03U;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    sum += x ^ (x >> 31);
  }
  return sum;
}

TEST(TensorChecksum, IsTheHashOfItsHeader) {
  for (const auto& shape : std::vector<std::vector<std::int64_t>>{{}, {5}, {4, 3}, {2, 3, 4}}) {
    const auto tensor = random(shape);
    EXPECT_EQ(static_cast<std::uint64_t>(whole(tensor)), reference(tensor)) << tensor.sizes();
  }
}

TEST(TensorChecksum, PartsAddUpToTheWholeHoweverTheyAreCut) {
  const auto tensor = random({7, 5});
  const auto sum = static_cast<std::uint64_t>(whole(tensor));
  const auto add = [](std::initializer_list<std::int64_t> parts) {
    std::uint64_t out = 0;
    for (const auto one : parts) out += static_cast<std::uint64_t>(one);
    return out;
  };
  EXPECT_EQ(add({part(tensor, {0, 0}, {4, 5}), part(tensor, {4, 0}, {3, 5}), part(tensor, {7, 0}, {0, 5})}), sum);
  EXPECT_EQ(add({part(tensor, {0, 0}, {7, 2}), part(tensor, {0, 2}, {7, 3})}), sum);
  EXPECT_EQ(add({part(tensor, {0, 0}, {3, 2}), part(tensor, {0, 2}, {3, 3}), part(tensor, {3, 0}, {4, 2}),
                 part(tensor, {3, 2}, {4, 3})}),
            sum);
}

TEST(TensorChecksum, ATensorOfSeveralPiecesOfWorkHasTheSameParts) {
  const auto tensor = random({3, 1 << 19});  // more than are hashed at once
  const auto rows = static_cast<std::uint64_t>(part(tensor, {0, 0}, {1, 1 << 19})) +
                    static_cast<std::uint64_t>(part(tensor, {1, 0}, {2, 1 << 19}));
  EXPECT_EQ(rows, static_cast<std::uint64_t>(whole(tensor)));
}

TEST(TensorChecksum, EveryBitAndEveryPlaceCounts) {
  const auto tensor = random({4, 4});
  auto other = tensor.clone();
  other.view(at::kInt).bitwise_xor_(at::tensor({1, 0, 0, 0}, at::kInt));
  EXPECT_NE(whole(other), whole(tensor));
  EXPECT_NE(whole(tensor.t().contiguous()), whole(tensor));
  EXPECT_EQ(whole(tensor.t().contiguous().t()), whole(tensor));  // strides do not count
  EXPECT_NE(whole(at::zeros({4})), whole(-at::zeros({4})));
  EXPECT_NE(whole(at::zeros({4})), whole(at::zeros({5})));
}

TEST(TensorChecksum, TakesEveryFloat) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const auto tensor = random({3, 3}).to(dtype);
    EXPECT_EQ(static_cast<std::uint64_t>(whole(tensor)), static_cast<std::uint64_t>(part(tensor, {0, 0}, {1, 3})) +
                                                             static_cast<std::uint64_t>(part(tensor, {1, 0}, {2, 3})));
  }
}

TEST(TensorChecksum, NothingIsZero) {
  EXPECT_EQ(sum_of({}, dist::ShardSpec::replicated({3})), 0);
  EXPECT_EQ(sum_of(at::empty({0, 5}), {{7, 5}, {7, 0}, {0, 5}}), 0);
}

}  // namespace
}  // namespace titan::train
