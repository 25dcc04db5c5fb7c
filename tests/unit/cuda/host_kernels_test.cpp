// Runs the CUDA kernels themselves on the host, each thread of a block by itself, against the loops of host_launches(),
// which add in the same order: every bit is equal. scripts/sanitize.sh runs it, too.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "kernels/cuda/fill_uniform.h"
#include "kernels/cuda/launch_fused_rows.h"
#include "kernels/cuda/launch_kernel.h"
#include "kernels/device/device_operators.h"

namespace titan::cuda {
namespace {

using device::BFloat16Bits;
using device::Rotation;

// The elements of a tensor, at exactly the alignment that kernels need, followed by memory that is not theirs.
template <typename T>
class Buffer {
 public:
  explicit Buffer(std::int64_t count) : packs_((count + kSize - 1) / kSize), count_(count) {}

  T* data() { return packs_.data()->values; }
  std::vector<std::uint8_t> bytes() {
    std::vector<std::uint8_t> out(static_cast<std::size_t>(count_) * sizeof(T));
    std::memcpy(out.data(), data(), out.size());
    return out;
  }

 private:
  static constexpr std::int64_t kSize = device::Pack<T>::kSize;
  std::vector<device::Pack<T>> packs_;
  std::int64_t count_;
};

template <typename T>
Buffer<T> drawn(std::int64_t count, unsigned seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Buffer<T> out(count);
  for (std::int64_t i = 0; i < count; ++i) out.data()[i] = device::rounded<T>(scale * normal(random));
  return out;
}

template <auto launch>
constexpr auto succeeds = [](auto... arguments) { EXPECT_EQ(launch(arguments..., cudaStream_t{}), cudaSuccess); };

template <typename T>
device::LaunchesFor<T> kernel_launches() {
  return {.rms_norm = succeeds<launch_rms_norm<T>>,
          .rms_norm_backward = succeeds<launch_rms_norm_backward<T>>,
          .rotate = succeeds<launch_rotate<T>>,
          .rotate_halves = succeeds<launch_rotate_halves<T>>,
          .swiglu = succeeds<launch_swiglu<T>>,
          .swiglu_backward = succeeds<launch_swiglu_backward<T>>};
}

template <typename T>
device::LaunchesFor<T> loops() {
  if constexpr (std::is_same_v<T, float>)
    return device::host_launches().of_float;
  else
    return device::host_launches().of_bfloat16;
}

using Bytes = std::vector<std::vector<std::uint8_t>>;

template <typename T>
class HostKernels : public testing::Test {};
using Types = testing::Types<float, BFloat16Bits>;
TYPED_TEST_SUITE(HostKernels, Types);

struct Matrix {
  std::int64_t rows, dim;
};
// Packs per row: fewer than lanes, as many and more.
const Matrix kMatrices[] = {{1, 8}, {7, 24}, {5, 2048}, {4, 4096 + 64}};

template <typename T>
Bytes norms(const device::LaunchesFor<T>& by, Matrix of, bool with_sum, std::int64_t teams) {
  const auto [rows, dim] = of;
  auto x = drawn<T>(rows * dim, 1, 3), delta = drawn<T>(rows * dim, 2), weight = drawn<T>(dim, 3);
  auto out_grad = drawn<T>(rows * dim, 4), more = drawn<T>(rows * dim, 5);
  Buffer<T> sum(rows * dim), out(rows * dim), x_grad(rows * dim), weight_grad(dim);
  Buffer<float> rrms(rows), columns(teams * dim);
  by.rms_norm(rows, dim, 1e-5F, x.data(), with_sum ? delta.data() : nullptr, weight.data(),
              with_sum ? sum.data() : nullptr, out.data(), rrms.data());
  by.rms_norm_backward(rows, dim, teams, out_grad.data(), with_sum ? more.data() : nullptr, x.data(), weight.data(),
                       rrms.data(), x_grad.data(), weight_grad.data(), columns.data());
  return {sum.bytes(), out.bytes(), rrms.bytes(), x_grad.bytes(), weight_grad.bytes()};
}

TYPED_TEST(HostKernels, NormsAreThoseOfLoops) {
  for (const Matrix matrix : kMatrices)
    for (const bool with_sum : {false, true})
      for (const std::int64_t teams : {1, 3})
        EXPECT_EQ(norms(kernel_launches<TypeParam>(), matrix, with_sum, teams),
                  norms(loops<TypeParam>(), matrix, with_sum, teams))
            << matrix.rows << " x " << matrix.dim << ", sum " << with_sum << ", teams " << teams;
}

TYPED_TEST(HostKernels, ColumnsMayBeMoreThanABlockUsuallyShares) {
  EXPECT_EQ(norms(kernel_launches<TypeParam>(), {2, 12800}, false, 2), norms(loops<TypeParam>(), {2, 12800}, false, 2));
}

// Each strip of a block adds several teams, and some strips have none.
TYPED_TEST(HostKernels, ManyTeamsAreSummedAsByLoops) {
  for (const std::int64_t teams : {31, 70})
    EXPECT_EQ(norms(kernel_launches<TypeParam>(), {teams, 96}, false, teams),
              norms(loops<TypeParam>(), {teams, 96}, false, teams));
}

template <typename T>
Bytes rotated(const device::LaunchesFor<T>& by, bool halves, bool conjugate) {
  // Heads of a row that has more: its strides are larger than its elements.
  const Rotation shape{2, 5, 3, 32, 5 * 160, 160, 48};
  auto x = drawn<T>(2 * 5 * 160, 6);
  auto factors = drawn<float>(5 * 32, 7);
  Buffer<T> out(2 * 5 * 3 * 32);
  (halves ? by.rotate_halves : by.rotate)(shape, x.data(), factors.data(), conjugate, out.data());
  return {out.bytes()};
}

TYPED_TEST(HostKernels, RotationsAreThoseOfLoops) {
  for (const bool halves : {false, true})
    for (const bool conjugate : {false, true})
      EXPECT_EQ(rotated(kernel_launches<TypeParam>(), halves, conjugate),
                rotated(loops<TypeParam>(), halves, conjugate));
}

template <typename T>
Bytes swiglu(const device::LaunchesFor<T>& by, std::int64_t count) {
  auto gate = drawn<T>(count, 8, 2), up = drawn<T>(count, 9), out_grad = drawn<T>(count, 10);
  Buffer<T> out(count), gate_grad(count), up_grad(count);
  by.swiglu(count, gate.data(), up.data(), out.data());
  by.swiglu_backward(count, out_grad.data(), gate.data(), up.data(), gate_grad.data(), up_grad.data());
  return {out.bytes(), gate_grad.bytes(), up_grad.bytes()};
}

TYPED_TEST(HostKernels, SwigluIsThatOfLoops) {
  for (const std::int64_t count : {8, 3 * 2048, 3 * 2048 + 8})
    EXPECT_EQ(swiglu(kernel_launches<TypeParam>(), count), swiglu(loops<TypeParam>(), count)) << count;
}

// More elements than the largest grid has lanes: the lanes go on with further ones.
TEST(HostFill, DrawsTheNumbersOfLoops) {
  for (const std::int64_t numel : {0, 1, 1021, 2'100'000}) {
    const Fill fill{42, 7, 3, numel};
    std::vector<float> found(static_cast<std::size_t>(numel), -1), expected(found);
    EXPECT_EQ(launch_fill_uniform(found.data(), fill, nullptr), cudaSuccess);
    for (std::int64_t group = 0; group < num_groups(fill); ++group) fill_group(fill, group, expected.data());
    EXPECT_TRUE(found == expected) << numel;
  }
}

// ------------------------------------------------------------------------------------------------ what runs them

void sums_of_warps(float* out) {
  float value = static_cast<float>(threadIdx.x + 1);
  for (int apart = 16; apart > 0; apart /= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, apart);
  out[blockIdx.x * 64 + threadIdx.x] = value;
}

TEST(HostLanes, ShuffleWithinWarps) {
  std::vector<float> out(2 * 64);
  EXPECT_EQ(launch_kernel({2, 64}, nullptr, sums_of_warps, out.data()), cudaSuccess);
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], i % 64 < 32 ? 528 : 1552) << i;
}

void reverses(const int* from, int* to) {
  __shared__ int values[64];
  values[threadIdx.x] = from[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  to[blockIdx.x * 64 + threadIdx.x] = values[63 - threadIdx.x];
}

TEST(HostLanes, EachBlockHasItsSharedMemory) {
  std::vector<int> from(5 * 64), to(from);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<int>(i);
  EXPECT_EQ(launch_kernel({5, 64}, nullptr, reverses, from.data(), to.data()), cudaSuccess);
  for (int i = 0; i < 5 * 64; ++i) EXPECT_EQ(to[i], i / 64 * 64 + 63 - i % 64);
}

void some_wait() {
  if (threadIdx.x < 5) __syncthreads();
}
void some_shuffle() {
  if (threadIdx.x < 5) __shfl_xor_sync(0xFFFFFFFFU, 1, 1);
  __syncthreads();
}

TEST(HostLanesDeathTest, LanesThatWaitForEverAreReported) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(launch_kernel({1, 64}, nullptr, some_wait), "wait for others that have ended");
  EXPECT_DEATH(launch_kernel({1, 64}, nullptr, some_shuffle), "wait at a barrier for others in a shuffle");
}

void nothing() {}

TEST(HostLanes, RefusesWhatADeviceRefuses) {
  EXPECT_EQ(launch_kernel({0, 64}, nullptr, nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch_kernel({1, 2048}, nullptr, nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch_kernel({1, 64, std::size_t{49} << 10}, nullptr, nothing), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 49 << 10), cudaSuccess);
  EXPECT_EQ(launch_kernel({1, 64, std::size_t{49} << 10}, nullptr, nothing), cudaSuccess);
}

}  // namespace
}  // namespace titan::cuda
