// Tests fully_shard after a forward or a backward that throws, after a step in which a module of a group does not run,
// and with a parameter that is frozen or unfrozen later. Comments say where PyTorch behaves differently.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <unistd.h>

#include <stdexcept>

#include "parallel/fsdp/fsdp_state.h"
#include "parallel/fsdp/fully_shard.h"
#include "tests/support/run_ranks.h"
#include "tests/support/tiny_net.h"

namespace titan {
namespace {

using test::loss_of;
using test::one_dim;
using test::tokens_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Net = test::TinyNet;

enum class Fault { kNone, kForward, kBackward, kExit };

// Makes a net with embedding, blocks and root in groups of their own; the middle block throws where `fault` says so.
std::unique_ptr<Net> make_net(const dist::DeviceMesh& mesh, const Fault& fault,
                              std::optional<fsdp::ReshardAfterForward> rule = {}) {
  auto net = std::make_unique<Net>();
  (*net->blocks)[1].add_forward_wrapper([&fault](const nn::Module::Forward& forward, const nn::Tensors& inputs) {
    if (fault == Fault::kForward) throw std::runtime_error("planted");
    if (fault == Fault::kExit) ::_exit(7);
    auto out = forward(inputs);
    if (fault == Fault::kBackward) {
      out.register_hook([](const at::Tensor& grad) -> at::Tensor {
        if (grad.defined()) throw std::runtime_error("planted");
        return grad;
      });
    }
    return out;
  });
  fsdp::FullyShardOptions options{.mesh = mesh};
  options.reshard_after_forward = rule;
  test::shard_by_block(*net, options, /*checkpoint=*/false);
  fsdp::to_empty(*net, at::kCPU);
  net->init_weights();
  return net;
}

void backward(Net& net, int step, int rank) { torch::autograd::backward({loss_of(net, tokens_of(step, rank))}, {}); }

std::vector<at::Tensor> grads_of(Net& net) {
  std::vector<at::Tensor> grads;
  for (const auto& parameter : net.named_parameters()) grads.push_back(parameter.tensor().grad());
  return grads;
}

void expect_equal_grads(Net& found, Net& expected) {
  const auto a = grads_of(found), b = grads_of(expected);
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].defined(), b[i].defined()) << i;
    EXPECT_TRUE(!a[i].defined() || a[i].equal(b[i])) << i;
  }
}

// In PyTorch, the parameters that the failed forward gathered stay, and the next forward uses them, even after an
// optimizer step.
TEST(FullyShardRecovery, AForwardThatThrewLeavesTheModelAsItWas) {
  test::on_ranks(2, [](dist::World& world) {
    const auto mesh = one_dim(world);
    Fault fault = Fault::kForward;
    const auto net = make_net(mesh, fault);
    EXPECT_THROW(backward(*net, 0, world.rank()), std::runtime_error);
    for (auto* state : fsdp::FsdpState::all_below(*net)) EXPECT_FALSE(state->group()->holds_gathered());
    fault = Fault::kNone;
    {
      const at::NoGradGuard no_grad;
      for (const auto& parameter : net->named_parameters()) parameter.tensor().mul_(2);
    }
    backward(*net, 1, world.rank());
    const Fault none = Fault::kNone;
    const auto other = make_net(mesh, none);
    {
      const at::NoGradGuard no_grad;
      for (const auto& parameter : other->named_parameters()) parameter.tensor().mul_(2);
    }
    backward(*other, 1, world.rank());
    expect_equal_grads(*net, *other);
  });
}

// Ranks can finish nothing together with one that is gone: they report one reason, that of the forward.
TEST(FullyShardRecovery, ARankThatIsGoneIsOneReason) {
  const auto ends = test::ends_of_ranks(2, [](dist::World& world) {
    const Fault fault = world.rank() == 1 ? Fault::kExit : Fault::kNone;
    const auto net = make_net(one_dim(world), fault);
    backward(*net, 0, world.rank());
  });
  if (test::is_rank()) return;
  EXPECT_EQ(ends.at(1).how, "exit code 7") << ends[1].said;
  EXPECT_NE(ends.at(0).how, "exit code 0");
  EXPECT_THAT(ends[0].said, AllOf(HasSubstr("rank 1"), Not(HasSubstr("[fsdp]"))));
}

// In PyTorch, no later backward of the model is finalized: its reductions are not waited for.
TEST(FullyShardRecovery, ABackwardThatThrewCostsItsGradientsOnly) {
  test::on_ranks(2, [](dist::World& world) {
    const auto mesh = one_dim(world);
    Fault fault = Fault::kBackward;
    const auto net = make_net(mesh, fault);
    EXPECT_ANY_THROW(backward(*net, 0, world.rank()));
    fault = Fault::kNone;
    const auto forward_only = loss_of(*net, tokens_of(0, world.rank()));  // leftovers are cleared here
    for (const auto& parameter : net->named_parameters()) parameter.tensor().mutable_grad().reset();  // zero_grad
    backward(*net, 1, world.rank());
    const Fault none = Fault::kNone;
    const auto other = make_net(mesh, none);
    backward(*other, 1, world.rank());
    expect_equal_grads(*net, *other);
  });
}

TEST(FullyShardRecovery, AFailedPartLeavesTheModelAsItWas) {
  test::on_ranks(2, [](dist::World& world) {
    Fault fault = Fault::kNone;
    const auto net = make_net(one_dim(world), fault);
    const auto loss = [&] { return loss_of(*net, tokens_of(0, world.rank())).item<double>(); };
    const auto before = loss();
    fault = Fault::kForward;
    EXPECT_THROW((*net->blocks)[1](at::ones({2, 7})), std::runtime_error);
    fault = Fault::kNone;
    (*net->blocks)[1](at::ones({2, 7}));
    EXPECT_EQ(loss(), before);
  });
}

// Follows requires_grad of the shard at the time of the forward, as PyTorch does.
TEST(FullyShardRecovery, AParameterMayBeFrozenAndThawed) {
  test::on_ranks(2, [](dist::World& world) {
    const Fault none = Fault::kNone;
    const auto net = make_net(one_dim(world), none);
    const auto trained = [&] { return net->embedding->weight.grad().defined(); };
    for (const bool requires_grad : {true, false, true}) {
      net->embedding->weight.set_requires_grad(requires_grad);
      net->embedding->weight.mutable_grad().reset();
      backward(*net, 0, world.rank());
      EXPECT_EQ(trained(), requires_grad);
    }
  });
}

TEST(FullyShardRecovery, AParameterFrozenOnMetaStaysFrozen) {
  const auto world = dist::World::fake(1);
  Net net;
  fsdp::fully_shard(net, {.mesh = one_dim(*world)});
  net.embedding->weight.set_requires_grad(false);
  fsdp::to_empty(net, at::kCPU);
  EXPECT_FALSE(net.embedding->weight.requires_grad());
}

class SometimesShorter : public Net {
 public:
  at::Tensor forward(const nn::Tensors& inputs) override {
    if (!is_short) return Net::forward(inputs);
    return (*output)((*blocks)[1]((*embedding)(inputs[0])));
  }
  bool is_short = false;
};

// Expects a warning at the end of backward and a normal next step, as in PyTorch.
TEST(FullyShardRecovery, AModuleOfAGroupMayNotRun) {
  test::on_ranks(2, [](dist::World& world) {
    SometimesShorter net;
    const fsdp::FullyShardOptions options{.mesh = one_dim(world)};
    fsdp::fully_shard({&(*net.blocks)[1], &(*net.blocks)[2]}, options);
    fsdp::fully_shard(net, options);
    fsdp::to_empty(net, at::kCPU);
    net.init_weights();
    const auto& group = *fsdp::FsdpState::of((*net.blocks)[2])->group();
    backward(net, 0, world.rank());
    const auto expected = grads_of(net);
    for (const auto& parameter : net.named_parameters()) parameter.tensor().mutable_grad().reset();
    net.is_short = true;
    testing::internal::CaptureStdout();
    backward(net, 0, world.rank());
    EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("1 of the 2 modules"));
    net.is_short = false;
    EXPECT_FALSE(group.holds_gathered());
    for (const auto& parameter : net.named_parameters()) parameter.tensor().mutable_grad().reset();
    backward(net, 0, world.rank());
    const auto found = grads_of(net);
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i].equal(expected[i])) << i;
  });
}

TEST(FullyShardRecovery, TheLastBackwardMayBeSaidOnAnyModule) {
  test::on_ranks(2, [](dist::World& world) {
    const Fault none = Fault::kNone;
    const auto net = make_net(one_dim(world), none), other = make_net(one_dim(world), none);
    for (int i = 0; i < 2; ++i) {
      fsdp::set_is_last_backward((*net->blocks)[1], i == 1);
      backward(*net, i, world.rank());
      fsdp::set_is_last_backward(*other, i == 1);
      backward(*other, i, world.rank());
    }
    expect_equal_grads(*net, *other);
  });
}

// Reshards over all shard ranks if set to true, whatever the value was before, as PyTorch does.
TEST(FullyShardRecovery, AnIntegerReshardMayBecomeAWholeOne) {
  test::on_ranks(4, [](dist::World& world) {
    const Fault none = Fault::kNone;
    const auto net = make_net(one_dim(world), none, fsdp::ReshardAfterForward(2));
    const auto* const param = fsdp::FsdpState::of((*net->blocks)[0])->group()->params().front();
    loss_of(*net, tokens_of(0, world.rank()));
    EXPECT_EQ(param->send_numel(), 2 * param->chunk_numel());  // shards over two ranks, chunks over four
    fsdp::reshard(*net, /*recurse=*/true);
    fsdp::set_reshard_after_forward(*net, true);
    loss_of(*net, tokens_of(0, world.rank()));
    EXPECT_EQ(param->send_numel(), param->chunk_numel());
    backward(*net, 0, world.rank());
    const auto other = make_net(one_dim(world), none);
    backward(*other, 0, world.rank());
    expect_equal_grads(*net, *other);
  });
}

TEST(FullyShardRecovery, AHandleMayBeWaitedForTooLate) {
  test::on_ranks(2, [](dist::World& world) {
    const Fault none = Fault::kNone;
    const auto net = make_net(one_dim(world), none);
    auto handle = fsdp::unshard(*net->embedding, /*async=*/true);
    loss_of(*net, tokens_of(0, world.rank()));  // gathers it and frees it
    handle.wait();
    EXPECT_FALSE(fsdp::FsdpState::of(*net->embedding)->group()->holds_gathered());
  });
}

}  // namespace
}  // namespace titan
