// Tests every instruction set of this machine against ATen's copy_().
#include "kernels/memory/stream_copy.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tests/unit/kernels/of_this_machine.h"

namespace titan::kernels {
namespace {

std::vector<const StreamCopies*> kernels_of_this_machine() { return TITAN_KERNELS_OF_THIS_MACHINE(kStreamCopies); }

// Floats of all magnitudes, including ties of the rounding to bfloat16 and NaN.
at::Tensor floats(std::int64_t numel) {
  auto bits = at::randint(std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max(), {numel},
                          at::make_generator<at::CPUGeneratorImpl>(1), at::kInt);
  bits.slice(0, 0, numel, 3).bitwise_and_(~0xFFFF).bitwise_or_(0x8000);
  return bits.view(at::kFloat);
}

// Returns the bits, with every NaN the same.
at::Tensor bits_of(const at::Tensor& tensor) {
  const auto one_nan = tensor.masked_fill(tensor.isnan(), std::numeric_limits<float>::quiet_NaN());
  return one_nan.view(tensor.scalar_type() == at::kFloat ? at::kInt : at::kShort);
}

// Tests every kernel from and to addresses at each offset within a cache line, with every kind of rest at the end;
// memory before and after the target stays unchanged. Copies `numel` or some more elements.
void expect_copies_as_aten(at::ScalarType target_dtype, at::ScalarType source_dtype, std::int64_t numel) {
  const auto source = floats(numel + 200).to(source_dtype);
  for (const auto* kernels : kernels_of_this_machine()) {
    for (std::int64_t shift = 0; shift < 70; ++shift) {
      const std::int64_t count = numel + 2 * shift + shift % 3;
      const auto part = source.narrow(0, shift % 5, count);
      auto found = at::full({numel + 300}, -7.0, target_dtype), expected = found.clone();
      expected.narrow(0, shift, count).copy_(part);
      stream_copy(*kernels, found.narrow(0, shift, count), part);
      ASSERT_TRUE(bits_of(found).equal(bits_of(expected))) << kernels->name << ", shift " << shift;
    }
  }
}

TEST(StreamCopy, OfOneDtypeIsATensCopy) { expect_copies_as_aten(at::kFloat, at::kFloat, 300); }
TEST(StreamCopy, ToBfloat16IsATensCast) { expect_copies_as_aten(at::kBFloat16, at::kFloat, 300); }
TEST(StreamCopy, FromBfloat16IsATensCast) { expect_copies_as_aten(at::kFloat, at::kBFloat16, 300); }

TEST(StreamCopy, OfLessThanAVectorIsATensCopy) {
  for (std::int64_t numel = 0; numel < 9; ++numel) {
    expect_copies_as_aten(at::kBFloat16, at::kFloat, numel);
    expect_copies_as_aten(at::kBFloat16, at::kBFloat16, numel);
  }
}

TEST(StreamCopy, OnThreadsLeavesNoGap) {
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  const auto source = floats(kSmallestStreamed);
  for (const auto* kernels : kernels_of_this_machine()) {
    const auto found = at::zeros({source.numel()}, at::kBFloat16);
    stream_copy(*kernels, found, source);
    EXPECT_TRUE(bits_of(found).equal(bits_of(source.to(at::kBFloat16)))) << kernels->name;
  }
  at::set_num_threads(before);
}

TEST(StreamCopy, CountsAsAWriteForAutograd) {
  auto target = at::zeros({kSmallestStreamed});
  const auto before = target._version();
  copy_past_caches(target, at::ones({kSmallestStreamed}));
  EXPECT_EQ(target._version(), before + 1);
  EXPECT_TRUE(target.eq(1).all().item<bool>());
}

TEST(StreamCopy, TakesWhatItsKernelsCanDo) {
  const auto large = at::zeros({2048, 2048});
  EXPECT_TRUE(takes_stream_copy(large, large.clone()));
  EXPECT_TRUE(takes_stream_copy(at::zeros({64, 128, 128}, at::kDouble), at::ones({64, 128, 128}, at::kDouble)));
  EXPECT_FALSE(takes_stream_copy(large, at::zeros({2048})));    // to be broadcast
  EXPECT_FALSE(takes_stream_copy(large, large.t()));            // in another order
  EXPECT_FALSE(takes_stream_copy(large.to(at::kHalf), large));  // no kernel
  EXPECT_FALSE(takes_stream_copy(at::zeros({2048, 2048}, at::kMeta), large));
}

// Tensors that it does not take are copied as well.
TEST(StreamCopy, CopiesTheRestAsATenDoes) {
  const auto source = floats(1 << 20).nan_to_num().view({1024, 1024});
  const auto small = at::zeros({7}), transposed = at::zeros({1024, 1024}), half = at::zeros({1024, 1024}, at::kHalf);
  copy_past_caches({small, transposed, half}, {source[0].narrow(0, 3, 7), source.t(), source});
  EXPECT_TRUE(small.equal(source[0].narrow(0, 3, 7)));
  EXPECT_TRUE(transposed.equal(source.t()));
  EXPECT_TRUE(half.equal(source.to(at::kHalf)));
}

}  // namespace
}  // namespace titan::kernels
