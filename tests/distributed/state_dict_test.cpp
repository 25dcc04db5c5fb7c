// Whole tensors out of shards and back, against a model that was never sharded.
#include "train/state_dict.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/error.h"
#include "parallel/fsdp/fully_shard.h"
#include "tests/support/tiny_net.h"

namespace titan::train {
namespace {

using test::TinyNet;
using ::testing::AllOf;
using ::testing::HasSubstr;

dist::DeviceMesh mesh_of(dist::World& world) {
  if (world.size() < 4) return test::one_dim(world);
  return dist::DeviceMesh::init(world, {2, 2}, {"replicate", "shard"});
}

void train_one_step(TinyNet& net, optim::AdamW& optimizer) {
  torch::autograd::backward({test::loss_of(net, test::tokens_of(0, 0))}, {});
  optimizer.step();
  optimizer.zero_grad();
}

const at::Tensor& find(const StateDict& state, const std::string& name) {
  for (const auto& [key, value] : state) {
    if (key == name) return value;
  }
  throw std::out_of_range(name);
}

void expect_equal(const StateDict& a, const StateDict& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    EXPECT_TRUE(a[i].second.equal(b[i].second)) << a[i].first;
  }
}

constexpr StateDictOptions kOnRank0{.full_state_dict = true, .cpu_offload = true};
constexpr StateDictOptions kFromRank0{.full_state_dict = true, .broadcast_from_rank0 = true};

class StateDictTest : public ::testing::TestWithParam<int> {};

TEST_P(StateDictTest, WholeTensorsGoToRank0AndBack) {
  test::on_ranks(GetParam(), [](dist::World& world) {
    auto& group = world.group();
    auto net = test::sharded_net(mesh_of(world));
    auto optimizer = test::optimizer_of(*net);

    // Initialization does not depend on the sharding.
    TinyNet plain;
    fsdp::to_empty(plain, at::kCPU);
    plain.init_weights();
    const auto initial = get_model_state_dict(*net, {.full_state_dict = true}, group);
    expect_equal(initial, get_model_state_dict(plain, {}, group));

    train_one_step(*net, optimizer);
    fsdp::reshard(*net);
    const auto shards = get_model_state_dict(*net, {.cpu_offload = true}, group);
    const auto moments = get_optimizer_state_dict(*net, optimizer, {.cpu_offload = true}, group);
    auto model = get_model_state_dict(*net, kOnRank0, group);
    auto state = get_optimizer_state_dict(*net, optimizer, kOnRank0, group);
    if (world.rank() == 0) {
      EXPECT_EQ(model.size(), initial.size());
      EXPECT_EQ(state.size(), 3 * initial.size());
      EXPECT_FALSE(find(model, "output.weight").equal(find(initial, "output.weight"))) << "nothing was learned";
      EXPECT_EQ(find(state, "state.output.weight.exp_avg").sizes(), (std::vector<std::int64_t>{13, 7}));
      EXPECT_EQ(find(state, "state.output.weight.step").item<float>(), 1);
    } else {
      EXPECT_TRUE(model.empty() && state.empty()) << "a second copy of the model";
      // Not looked at.
      model.emplace_back("nonsense", at::zeros({1}));
    }

    auto other = test::sharded_net(mesh_of(world));
    auto other_optimizer = test::optimizer_of(*other);
    set_model_state_dict(*other, model, kFromRank0, group);
    set_optimizer_state_dict(*other, other_optimizer, state, kFromRank0, group);
    expect_equal(get_model_state_dict(*other, {}, group), shards);
    expect_equal(get_optimizer_state_dict(*other, other_optimizer, {}, group), moments);

    // They go on alike.
    train_one_step(*net, optimizer);
    train_one_step(*other, other_optimizer);
    expect_equal(get_model_state_dict(*other, {}, group), get_model_state_dict(*net, {}, group));
  });
}

TEST_P(StateDictTest, EveryRankCutsItsPartOfAWholeTensor) {
  test::on_ranks(GetParam(), [](dist::World& world) {
    auto net = test::sharded_net(mesh_of(world));
    const auto whole = get_model_state_dict(*net, {.full_state_dict = true}, world.group());
    const auto shards = get_model_state_dict(*net, {.cpu_offload = true}, world.group());
    {
      const at::NoGradGuard no_grad;
      for (const auto& parameter : net->named_parameters()) parameter.tensor().zero_();
    }
    for (const auto& [name, shard] : shards) EXPECT_TRUE(shard.numel() == 0 || shard.any().item<bool>()) << "no copy";
    set_model_state_dict(*net, whole, {.full_state_dict = true}, world.group());
    expect_equal(get_model_state_dict(*net, {}, world.group()), shards);
  });
}

TEST_P(StateDictTest, AllFaultsAreListedOnAllRanks) {
  test::on_ranks(GetParam(), [](dist::World& world) {
    auto& group = world.group();
    auto net = test::sharded_net(mesh_of(world));
    auto state = get_model_state_dict(*net, {.full_state_dict = true}, group);
    const auto before = get_model_state_dict(*net, {.cpu_offload = true}, group);
    state.front().second = at::zeros({2, 7});
    state.back().first = "other.weight";
    if (world.rank() > 0) state.clear();
    const auto error = [&](const StateDictOptions& options) {
      try {
        set_model_state_dict(*net, state, options, group);
      } catch (const CheckpointError& caught) {
        return std::string(caught.what());
      }
      return std::string();
    };
    EXPECT_THAT(error(kFromRank0), AllOf(HasSubstr("Missing: output.weight."), HasSubstr("Unexpected: other.weight."),
                                         HasSubstr("Other shapes: embedding.weight is [2, 7], expected [13, 7].")));
    expect_equal(get_model_state_dict(*net, {}, group), before);
    if (world.rank() == 0) state.erase(state.begin());
    auto lenient = kFromRank0;
    lenient.strict = false;
    EXPECT_EQ(error(lenient), "");
    expect_equal(get_model_state_dict(*net, {}, group), before);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, StateDictTest, ::testing::Values(1, 2, 4));

}  // namespace
}  // namespace titan::train
