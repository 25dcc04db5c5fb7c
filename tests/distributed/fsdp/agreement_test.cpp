// Tests that every rank gets an error at the root's first forward if ranks have built different models.
#include "parallel/fsdp/agreement.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "parallel/fsdp/fully_shard.h"
#include "tests/support/message_of.h"
#include "tests/support/run_ranks.h"

namespace titan::fsdp {
namespace {

using testing::HasSubstr;

std::vector<ParamFacts> two_params() {
  return {{.fqn = "a.weight", .shape = {7, 3}, .dtype = at::kFloat},
          {.fqn = "b.weight", .shape = {2}, .dtype = at::kFloat, .group = 1}};
}

TEST(Agreement, SaysWhatDiffersWhere) {
  test::on_ranks(3, [](dist::World& world) {
    const bool odd = world.rank() == 2;
    const auto check = [&](const std::vector<ParamFacts>& params) {
      return test::message_of<DistError>([&] { check_ranks_agree(params, world.group()); });
    };
    EXPECT_EQ(check(two_params()), "no error");
    auto params = two_params();
    if (odd) params[0].shape = {8, 3};
    EXPECT_THAT(check(params), HasSubstr("a.weight: [7, 3] Float (sharded along dim 0 in group 1) on ranks "
                                         "0, 1; [8, 3] Float (sharded along dim 0 in group 1) on rank 2."));
    params = two_params();
    if (odd) params[1].dtype = at::kBFloat16;
    EXPECT_THAT(check(params), AllOf(HasSubstr("b.weight: [2] Float"), HasSubstr("[2] BFloat16")));
    params = two_params();
    if (odd) params.pop_back();
    EXPECT_THAT(check(params), AllOf(HasSubstr("b.weight: [2] Float"), HasSubstr("on ranks 0, 1; none on rank 2.")));
    params = two_params();
    if (odd) params.insert(params.begin(), {.fqn = "c", .shape = {1}, .dtype = at::kFloat});
    EXPECT_THAT(check(params), HasSubstr("c: none on ranks 0, 1; [1] Float"));
    params = two_params();
    if (odd) params[1].group = 0;
    EXPECT_THAT(check(params), HasSubstr("in group 1) on rank 2"));
    params = two_params();
    if (odd) params[1].trained = false;
    EXPECT_THAT(check(params), HasSubstr("frozen) on rank 2"));
    params = two_params();
    if (odd) params[0].shard_dim = 1;
    EXPECT_THAT(check(params), HasSubstr("dim 1 in group 1) on rank 2"));
    params = two_params();
    if (odd) std::swap(params[0], params[1]);
    EXPECT_THAT(check(params), HasSubstr("number 1 is a.weight on rank 0 and b.weight on rank 2"));
    params = two_params();
    if (odd) params[0].shape = params[1].shape = {9};
    EXPECT_THAT(check(params), HasSubstr("and 1 more parameters differ"));
  });
}

// A linear layer inside a module, so that a name relative to the root differs from one relative to the inner module.
class Outer : public nn::Module {
 public:
  explicit Outer(std::int64_t hidden) {
    child("inner", inner, std::make_shared<nn::Linear>(3, hidden));
    child("last", last, std::make_shared<nn::Linear>(hidden, 2));
  }
  at::Tensor forward(const nn::Tensors& inputs) override { return (*last)((*inner)(inputs[0])); }
  std::shared_ptr<nn::Linear> inner, last;
};

TEST(Agreement, IsCheckedAtTheFirstForward) {
  test::on_ranks(4, [](dist::World& world) {
    const auto mesh = dist::DeviceMesh::init(world, {2, 2}, {"dp_replicate", "fsdp"});
    Outer alike(4);
    fully_shard(*alike.inner, {.mesh = mesh});
    fully_shard(alike, {.mesh = mesh});
    to_empty(alike, at::kCPU);
    EXPECT_EQ(alike(at::ones({1, 3})).numel(), 2);
    // The shards of ranks 0 and 1 agree, and so do those of ranks 2 and 3: only the replicas differ.
    Outer odd(world.rank() < 2 ? 4 : 5);
    fully_shard(*odd.inner, {.mesh = mesh});
    fully_shard(odd, {.mesh = mesh});
    to_empty(odd, at::kCPU);
    const int replica = world.rank() % 2;
    EXPECT_THAT(
        test::message_of<DistError>([&] {
          odd(at::ones({1, 3}));
        }),
        AllOf(
            HasSubstr("inner.weight: [4, 3] Float (sharded along dim 0 in group 2) on rank " + std::to_string(replica)),
            HasSubstr("[5, 3] Float"), HasSubstr("on rank " + std::to_string(replica + 2)), HasSubstr("and 1 more")));
  });
}

}  // namespace
}  // namespace titan::fsdp
