#include "nn/init.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "nn/random/counter_rng.h"

namespace titan::nn {
namespace {

// A parameter of `shape`; only the box [offset, offset + local) is held.
struct Held {
  at::Tensor tensor;
  Parameter slot;
  Held(std::vector<std::int64_t> shape, std::vector<std::int64_t> offset, std::vector<std::int64_t> local)
      : tensor(at::zeros(local)),
        slot{"weight", &tensor, dist::Sharding{{}, {}, {std::move(shape), std::move(offset), std::move(local)}}} {}
  NamedParameter named(std::string fqn = "p.weight") { return {std::move(fqn), nullptr, &slot}; }
};

at::Tensor plain_trunc_normal(std::vector<std::int64_t> shape, double std, double a, double b,
                              at::Generator generator) {
  const auto cdf = [](double x) { return (1 + std::erf(x / std::sqrt(2.0))) / 2; };
  auto whole = at::empty(shape);
  whole.uniform_(2 * cdf(a / std) - 1, 2 * cdf(b / std) - 1, generator);
  return whole.erfinv_().mul_(std * std::sqrt(2.0)).add_(0.0).clamp_(a, b);
}

// Returns what a parameter gets after one of each kind that this rank may lack.
at::Tensor drawn_after(const std::vector<InitTarget>& before, Initializer& initializer) {
  Held last({40}, {0}, {40});
  initializer.normal(before[0], 0.0, 1.0);
  initializer.trunc_normal(before[1], 0.0, 0.5, -1.0, 1.0);
  initializer.ones(before[2]);
  initializer.normal(last.named("last"), 0.0, 1.0);
  return last.tensor;
}

TEST(Initializer, AbsentParametersOnlyAdvanceTheNumbers) {
  for (const std::int64_t size : {5, 16, 33, 70000, 131072 + 7}) {
    Held a({size}, {0}, {size}), b({size}, {0}, {size}), c({size}, {0}, {size});
    const std::vector<InitTarget> present = {a.named("a"), b.named("b"), c.named("c")};
    const std::vector<InitTarget> absent = {{"a", {size}}, {"b", {size}}, {"c", {size}}};
    SequentialInitializer one(42), other(42);
    EXPECT_TRUE(drawn_after(present, one).equal(drawn_after(absent, other))) << size;
    CounterInitializer by_name(42), by_name_too(42);
    EXPECT_TRUE(drawn_after(present, by_name).equal(drawn_after(absent, by_name_too))) << size;
  }
}

// Sizes around the block size (65,536), not divisible by 16, and below 16, where torch draws differently.
TEST(SequentialInitializer, GivesTheBitsOfTheWholeTensorInEveryShard) {
  for (const auto& shape : std::vector<std::vector<std::int64_t>>{
           {5}, {15}, {16}, {33}, {1000, 257}, {7, 40001}, {131072}, {131072 + 16}, {3, 65537}}) {
    const std::int64_t rows = shape[0];
    for (const std::int64_t world : {1, 2, 3, 4}) {
      for (std::int64_t rank = 0; rank < world; ++rank) {
        const std::int64_t chunk = (rows + world - 1) / world;
        const std::int64_t first = std::min(rows, rank * chunk), count = std::min(rows - first, chunk);
        auto offset = std::vector<std::int64_t>(shape.size(), 0);
        auto local = shape;
        offset[0] = first;
        local[0] = count;
        Held held(shape, offset, local);
        SequentialInitializer initializer(42);
        initializer.normal(held.named(), 0.0, 1.0);
        auto generator = at::detail::createCPUGenerator(42);
        auto whole = at::empty(shape).normal_(0.0, 1.0, generator);
        EXPECT_TRUE(held.tensor.equal(whole.narrow(0, first, count)))
            << "normal, rows " << rows << " rank " << rank << "/" << world;
        // The stream continues where the full tensor's would, also for ranks that skipped most of it.
        initializer.trunc_normal(held.named(), 0.0, 0.02, -2, 2);
        whole = plain_trunc_normal(shape, 0.02, -2, 2, generator);
        EXPECT_TRUE(held.tensor.equal(whole.narrow(0, first, count)))
            << "trunc, rows " << rows << " rank " << rank << "/" << world;
      }
    }
  }
}

TEST(SequentialInitializer, FillsABoxThatIsNarrowInAnyDim) {
  const std::vector<std::int64_t> shape = {6, 700, 50};
  Held held(shape, {2, 100, 10}, {3, 400, 25});
  SequentialInitializer initializer(1);
  initializer.normal(held.named(), 0.0, 1.0);
  const auto whole = at::empty(shape).normal_(0.0, 1.0, at::detail::createCPUGenerator(1));
  EXPECT_TRUE(held.tensor.equal(whole.narrow(0, 2, 3).narrow(1, 100, 400).narrow(2, 10, 25)));
}

TEST(CounterRng, IsPhilox4x32WithTenRounds) {
  // Known answers of the Random123 library.
  using A4 = std::array<std::uint32_t, 4>;
  EXPECT_EQ(kernels::philox4x32({0, 0, 0, 0}, {0, 0}), (A4{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(kernels::philox4x32({0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}, {0xffffffffu, 0xffffffffu}),
            (A4{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(kernels::philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
            (A4{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(CounterInitializer, GivesEveryShardItsPartOfOneParameter) {
  const std::vector<std::int64_t> shape = {101, 33};
  Held whole(shape, {0, 0}, shape);
  CounterInitializer initializer(9);
  initializer.trunc_normal(whole.named(), 0.0, 0.02, -0.03, 0.03);
  Held part(shape, {40, 0}, {20, 33});
  CounterInitializer(9).trunc_normal(part.named(), 0.0, 0.02, -0.03, 0.03);
  EXPECT_TRUE(part.tensor.equal(whole.tensor.narrow(0, 40, 20)));
  Held other(shape, {0, 0}, shape);
  initializer.trunc_normal(other.named("q.weight"), 0.0, 0.02, -0.03, 0.03);
  EXPECT_FALSE(other.tensor.equal(whole.tensor));
}

// Mean and deviation of n draws lie within 5 standard errors, 1/sqrt(n) and 1/sqrt(2n), of a normal's.
TEST(CounterInitializer, DrawsANormalDistribution) {
  const std::int64_t n = 400000;
  Held held({n}, {0}, {n});
  CounterInitializer(3).normal(held.named(), 0.0, 1.0);
  EXPECT_NEAR(held.tensor.mean().item<double>(), 0.0, 5 / std::sqrt(n));
  EXPECT_NEAR(held.tensor.std().item<double>(), 1.0, 5 / std::sqrt(2.0 * n));
  EXPECT_TRUE(held.tensor.isfinite().all().item<bool>());
}

}  // namespace
}  // namespace titan::nn
