#include "nn/module.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include "base/error.h"
#include "nn/layers.h"

namespace titan::nn {
namespace {

class Pair : public Module {
 public:
  Pair() {
    param("scale", scale, {3});
    list_ = child("list", std::make_shared<ModuleList>());
    list_->append(std::make_shared<Linear>(3, 5));
    list_->append(std::make_shared<RMSNorm>(5, 1e-5));
  }
  at::Tensor forward(const Tensors& inputs) override { return inputs[0] + 1; }
  at::Tensor scale;

 private:
  std::shared_ptr<ModuleList> list_;
};

TEST(Module, NamesParametersInRegistrationOrderOnMeta) {
  Pair pair;
  std::vector<std::string> names;
  for (const auto& parameter : pair.named_parameters()) {
    names.push_back(parameter.fqn);
    EXPECT_TRUE(parameter.tensor().is_meta());
    EXPECT_TRUE(parameter.tensor().requires_grad());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"scale", "list.0.weight", "list.1.weight"}));
  EXPECT_EQ(pair.named_parameters()[1].spec(), dist::ShardSpec::replicated({5, 3}));
}

TEST(Module, SlotsReplaceTheMembersThatForwardReads) {
  Pair pair;
  pair.named_parameters()[0].tensor() = at::ones({3});
  EXPECT_TRUE(pair.scale.equal(at::ones({3})));
}

TEST(Module, RunsHooksInOrderAroundTheWrappedForward) {
  Pair pair;
  std::string order;
  pair.add_pre_hook([&](Module&, Tensors& inputs) {
    order += "a";
    inputs[0] = inputs[0] * 10;
  });
  pair.add_pre_hook([&](Module&, Tensors&) { order += "b"; });
  pair.set_forward_wrapper([&](const Module::Forward& forward, const Tensors& inputs) {
    order += "(";
    auto out = forward(inputs);
    order += ")";
    return out;
  });
  pair.add_post_hook([&](Module&, const Tensors&, at::Tensor& output) {
    order += "c";
    output = output * 2;
  });
  EXPECT_EQ(pair(at::ones({1})).item<float>(), 22);
  EXPECT_EQ(order, "ab()c");
}

struct Norm : RMSNorm {
  Norm() : RMSNorm(4, 1e-5) { weight = at::randn({4}).set_requires_grad(true); }
};

// Hooks before a call run for a norm of a sum too.
TEST(RMSNorm, OfASumRunsPreHooks) {
  Norm norm;
  const auto x = at::randn({3, 4}), delta = at::randn({3, 4});
  norm.add_pre_hook([](Module&, Tensors& inputs) {
    ASSERT_EQ(inputs.size(), 2U);
    inputs[1] = inputs[1] * 2;
  });
  const auto [sum, normed] = norm.of_sum(x, delta);
  EXPECT_TRUE(sum.equal(x + delta * 2));
  EXPECT_TRUE(normed.equal(norm.forward({sum})));
  EXPECT_NE(normed.grad_fn()->name().find("FusedAddRmsNorm"), std::string::npos);
}

// What is made for one output gets one, as from any other call.
TEST(RMSNorm, OfASumIsAnOrdinaryCallForPostHooksAndWrappers) {
  const auto x = at::randn({3, 4}), delta = at::randn({3, 4});
  Norm hooked, wrapped;
  hooked.add_post_hook([&](Module&, const Tensors& inputs, at::Tensor& output) {
    EXPECT_TRUE(inputs.at(0).equal(x + delta));
    output = output * 2;
  });
  wrapped.set_forward_wrapper(
      [](const Module::Forward& forward, const Tensors& inputs) { return forward(inputs) * 2; });
  for (Norm* norm : {&hooked, &wrapped}) {
    const auto [sum, normed] = norm->of_sum(x, delta);
    EXPECT_TRUE(sum.equal(x + delta));
    EXPECT_TRUE(normed.equal(norm->forward({x + delta}) * 2));
  }
}

TEST(Module, ListCannotBeCalled) {
  ModuleList list;
  EXPECT_TRUE(list.is_container());
  EXPECT_THROW(list(at::ones({1})), InternalError);
}

}  // namespace
}  // namespace titan::nn
