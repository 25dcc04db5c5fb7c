#include "nn/module.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include "base/error.h"
#include "nn/layers.h"
#include "tests/support/message_of.h"

namespace titan::nn {
namespace {

class Pair : public Module {
 public:
  Pair() {
    param("scale", scale, {3});
    child("list", list_, std::make_shared<ModuleList>());
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
  pair.add_forward_wrapper([&](const Module::Forward& forward, const Tensors& inputs) {
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

// Wrappers do not replace each other: the later one is around the earlier one, and both may call the inner forward
// any number of times.
TEST(Module, RunsEveryForwardWrapper) {
  Pair pair;
  const auto add = [&](double factor, int calls) {
    pair.add_forward_wrapper([=](const Module::Forward& forward, const Tensors& inputs) {
      auto out = forward(inputs);
      for (int i = 1; i < calls; ++i) out = forward({out});
      return out * factor;
    });
  };
  add(10, 2);
  add(3, 1);
  EXPECT_EQ(pair(at::ones({1})).item<float>(), (1 + 1 + 1) * 10 * 3);
}

class Caller : public Module {
 public:
  Caller() {
    child("first", first, std::make_shared<Linear>(3, 3));
    child("second", second, std::make_shared<Linear>(3, 3));
  }
  at::Tensor forward(const Tensors& inputs) override { return (*second)((*first)(inputs[0])); }
  std::shared_ptr<Linear> first, second;
};

struct Doubled : Linear {
  Doubled() : Linear(3, 3) { param("scale", scale, {1}); }
  at::Tensor forward(const Tensors& inputs) override { return inputs[0] * 2; }
  at::Tensor scale;
};

TEST(Module, ReplacesAChildInItsPlace) {
  Caller caller;
  const auto doubled = std::make_shared<Doubled>();
  caller.replace_child("first", doubled);
  caller.replace_child("second", std::make_shared<Doubled>());
  EXPECT_EQ(caller.first, doubled);
  EXPECT_EQ(caller.children()[0].second, doubled);
  EXPECT_TRUE(caller(at::ones({3})).equal(at::full({3}, 4.0)));
  std::vector<std::string> names;
  for (const auto& parameter : caller.named_parameters()) names.push_back(parameter.fqn);
  EXPECT_EQ(names, (std::vector<std::string>{"first.weight", "first.scale", "second.weight", "second.scale"}));
}

TEST(Module, ReplacesNoChildThatItCannotUse) {
  Caller caller;
  const auto before = caller.first;
  EXPECT_THROW(caller.replace_child("third", std::make_shared<Linear>(3, 3)), InternalError);
  EXPECT_THROW(caller.replace_child("first", std::make_shared<RMSNorm>(3, 1e-5)), InternalError);
  EXPECT_THROW(caller.replace_child("first", nullptr), InternalError);
  caller.named_parameters()[0].parameter->owner = "another part of the program";
  EXPECT_THROW(caller.replace_child("first", std::make_shared<Linear>(3, 3)), InternalError);
  EXPECT_EQ(caller.first, before);
  EXPECT_EQ(caller.children()[0].second, before);
}

// Two matrices of one shape, as an embedding and an output projection are, and one of another.
struct Tables : Module {
  Tables() {
    child("first", first, std::make_shared<Linear>(3, 5));
    child("second", second, std::make_shared<Linear>(3, 5));
    child("other", other, std::make_shared<Linear>(5, 3));
  }
  at::Tensor forward(const Tensors& inputs) override { return (*second)((*other)((*first)(inputs[0]))); }
  std::shared_ptr<Linear> first, second, other;
};

std::vector<std::string> names_of(Module& module, bool remove_duplicate) {
  std::vector<std::string> names;
  for (const auto& parameter : module.named_parameters(remove_duplicate)) names.push_back(parameter.fqn);
  return names;
}

TEST(Module, TiedSlotsAreOneParameter) {
  Tables tables;
  tables.tie("second.weight", "first.weight");
  EXPECT_EQ(names_of(tables, /*remove_duplicate=*/true), (std::vector<std::string>{"first.weight", "other.weight"}));
  EXPECT_EQ(names_of(tables, /*remove_duplicate=*/false),
            (std::vector<std::string>{"first.weight", "second.weight", "other.weight"}));
  EXPECT_EQ(names_of(*tables.second, /*remove_duplicate=*/true), std::vector<std::string>{"weight"});
  EXPECT_TRUE(tables.first->weight.is_same(tables.second->weight));
  for (auto& parameter : tables.named_parameters())
    parameter.parameter->set(at::randn(parameter.tensor().sizes()).set_requires_grad(true), std::nullopt);
  EXPECT_TRUE(tables.first->weight.is_same(tables.second->weight));

  // Both uses add to one gradient.
  const at::Tensor x = at::randn({2, 3});
  tables({x}).sum().backward();
  const at::Tensor tied = tables.first->weight.grad().clone();
  Tables apart;
  for (auto& parameter : apart.named_parameters()) {
    const at::Tensor& value = parameter.fqn == "other.weight" ? tables.other->weight : tables.first->weight;
    parameter.tensor() = value.detach().clone().set_requires_grad(true);
  }
  apart({x}).sum().backward();
  EXPECT_TRUE(tied.allclose(apart.first->weight.grad() + apart.second->weight.grad()));
}

TEST(Module, DropsAChildAndItsTies) {
  Tables tables;
  tables.tie("second.weight", "first.weight");
  tables.drop_child("first");
  EXPECT_EQ(tables.first, nullptr);
  EXPECT_EQ(names_of(tables, /*remove_duplicate=*/true), (std::vector<std::string>{"second.weight", "other.weight"}));
  EXPECT_EQ(tables.named_parameters()[0].parameter->tied_to, nullptr);
  tables.drop_child("second");
  EXPECT_EQ(names_of(tables, /*remove_duplicate=*/true), std::vector<std::string>{"other.weight"});
  EXPECT_EQ(test::message_of<InternalError>([&] { tables.drop_child("second"); }),
            "there is no child 'second' to be dropped");
}

TEST(Module, TiesNothingThatDoesNotFit) {
  Tables tables;
  const auto message = [&](const char* mine, const char* theirs) {
    return test::message_of<InternalError>([&] { tables.tie(mine, theirs); });
  };
  EXPECT_EQ(message("third.weight", "first.weight"), "there is no parameter 'third.weight' to tie");
  EXPECT_EQ(message("other.weight", "first.weight"), "other.weight [3, 5] cannot be tied to first.weight [5, 3]");
  EXPECT_EQ(message("first.weight", "first.weight"),
            "first.weight cannot be tied to first.weight: one is sharded, or tied already");
  tables.tie("second.weight", "first.weight");
  EXPECT_EQ(message("second.weight", "first.weight"),
            "second.weight cannot be tied to first.weight: one is sharded, or tied already");
  EXPECT_EQ(message("first.weight", "second.weight"),
            "first.weight cannot be tied to second.weight: one is sharded, or tied already");
  EXPECT_THROW(tables.replace_child("second", std::make_shared<Linear>(3, 5)), InternalError);
}

struct Norm : RMSNorm {
  Norm() : RMSNorm(4, 1e-5) { weight = at::randn({4}).set_requires_grad(true); }
};

// Pre-hooks also run for a norm of a sum.
TEST(RMSNorm, ForwardAddRunsPreHooks) {
  Norm norm;
  const auto x = at::randn({3, 4}), delta = at::randn({3, 4});
  norm.add_pre_hook([](Module&, Tensors& inputs) {
    ASSERT_EQ(inputs.size(), 2U);
    inputs[1] = inputs[1] * 2;
  });
  const auto [sum, normed] = norm.forward_add(x, delta);
  EXPECT_TRUE(sum.equal(x + delta * 2));
  EXPECT_TRUE(normed.equal(norm.forward({sum})));
  EXPECT_NE(normed.grad_fn()->name().find("FusedAddRmsNorm"), std::string::npos);
}

// Post-hooks and wrappers get one output, as from any other call.
TEST(RMSNorm, ForwardAddIsAnOrdinaryCallForPostHooksAndWrappers) {
  const auto x = at::randn({3, 4}), delta = at::randn({3, 4});
  Norm hooked, wrapped;
  hooked.add_post_hook([&](Module&, const Tensors& inputs, at::Tensor& output) {
    EXPECT_TRUE(inputs.at(0).equal(x + delta));
    output = output * 2;
  });
  wrapped.add_forward_wrapper(
      [](const Module::Forward& forward, const Tensors& inputs) { return forward(inputs) * 2; });
  for (Norm* norm : {&hooked, &wrapped}) {
    const auto [sum, normed] = norm->forward_add(x, delta);
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
