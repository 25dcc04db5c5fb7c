#include "optim/adamw.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/memory/host_arena.h"
#include "kernels/operators.h"
#include "optim/clip_grad_norm.h"
#include "tests/support/optimizer_state.h"

namespace titan::optim {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20;

// The moments reuse the memory that forward and backward have freed: the first step takes no more memory.
TEST(AdamW, MomentsTakeMemoryFromTheFirstStepOn) {
  ASSERT_TRUE(kernels::install_host_arena());
  auto used = at::ones({static_cast<std::int64_t>(kBytes / sizeof(float))}), unused = used.clone();
  const auto before = kernels::host_arena_stats().in_use;
  AdamW optimizer({{"used", used}, {"unused", unused}}, {});
  EXPECT_EQ(kernels::host_arena_stats().in_use, before);
  used.mutable_grad() = at::ones_like(used);
  ASSERT_EQ(optimizer.grads().size(), 2);
  EXPECT_TRUE(optimizer.grads()[0].is_same(used.grad()));
  EXPECT_FALSE(optimizer.grads()[1].defined());
  EXPECT_EQ(kernels::host_arena_stats().in_use, before + kBytes);  // the gradient

  optimizer.step();
  EXPECT_EQ(kernels::host_arena_stats().in_use, before + 5 * kBytes);
  const auto moment = test::state_of(optimizer, 0, "exp_avg");
  EXPECT_FLOAT_EQ(moment[7].item<float>(), 0.1F);
  EXPECT_EQ(test::state_of(optimizer, 1, "exp_avg_sq").count_nonzero().item<std::int64_t>(), 0);
  optimizer.step();
  EXPECT_TRUE(moment.is_same(test::state_of(optimizer, 0, "exp_avg")));
  EXPECT_FLOAT_EQ(moment[7].item<float>(), 0.19F);
}

// torch.optim.AdamW's entries between lr and initial_lr, as TorchTitan's checkpoints have them.
TEST(AdamW, HasTheEntriesOfTorchsParameterGroups) {
  const AdamW optimizer({{"weight", at::ones({3})}},
                        {.lr = 0.5, .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-9, .weight_decay = 0.2});
  std::vector<std::string> names;
  for (const auto& each : optimizer.hyperparameters(0)) names.push_back(each.name);
  EXPECT_EQ(names, (std::vector<std::string>{"betas", "eps", "weight_decay", "amsgrad", "maximize", "foreach",
                                             "capturable", "differentiable", "fused", "decoupled_weight_decay"}));
  EXPECT_EQ(optimizer.hyperparameters(0)[0].value, Value::tuple({0.8, 0.9}));
  EXPECT_EQ(optimizer.hyperparameters(0)[2].value, Value(0.2));
}

TEST(AdamW, HasMomentsForACheckpointBeforeTheFirstStep) {
  AdamW optimizer({{"weight", at::ones({3})}}, {});
  EXPECT_TRUE(test::state_of(optimizer, 0, "exp_avg").equal(at::zeros({3})));
  EXPECT_TRUE(test::state_of(optimizer, 0, "exp_avg_sq").equal(at::zeros({3})));
}

// Parameters and their gradients.
struct Model {
  std::vector<TrainedParameter> params;
  std::vector<ShardedGrad> grads;
};

// Parameters that the one pass takes, uneven and scalar, an empty shard, one without a gradient, and ones that it
// does not take: another dtype, a gradient with other strides.
Model make_model() {
  at::manual_seed(3);
  Model model;
  const auto add = [&](const std::string& name, const at::Tensor& param, const at::Tensor& grad) {
    param.mutable_grad() = grad;
    model.params.push_back({name, param});
    model.grads.push_back({grad, {}});
  };
  add("matrix", at::randn({37, 21}), at::randn({37, 21}));
  add("scalar", at::randn({}), at::randn({}));
  add("empty", at::empty({0, 5}), at::empty({0, 5}));
  add("unused", at::randn({4}), {});
  add("bfloat16", at::randn({50}, at::kBFloat16), at::randn({50}, at::kBFloat16));
  add("strided", at::randn({7, 9}), at::randn({9, 7}).t());
  add("long", at::randn({70001}), at::randn({70001}));
  return model;
}

// Sets the choice of kernels while it lives.
class Choice {
 public:
  explicit Choice(bool own) : before_(kernels::uses_fused_kernels(at::kCPU)) {
    kernels::use_fused_kernels(at::kCPU, own);
  }
  ~Choice() { kernels::use_fused_kernels(at::kCPU, before_); }
  Choice(const Choice&) = delete;
  Choice& operator=(const Choice&) = delete;

 private:
  bool before_;
};

constexpr double kMaxNorm = 10;  // the gradients have a norm of about 270

TEST(AdamW, ClipsToTheBitAsClippingInPlaceBefore) {
  for (const bool own : {true, false}) {
    const Choice choice(own);
    Model together = make_model(), apart = make_model();
    AdamW one(together.params, {}), two(apart.params, {});
    for (int step = 0; step < 3; ++step) {
      const auto clip = clip_factor(together.grads, kMaxNorm);
      one.step({.grad_factor = clip.factor});
      EXPECT_TRUE(clip.norm.equal(clip_grad_norm(apart.grads, kMaxNorm)));
      EXPECT_LT(clip.factor.item<float>(), 0.1);
      two.step();
      // Gradients for the next step to clip, because one of the two left its gradients unchanged.
      for (std::size_t i = 0; i < apart.grads.size(); ++i)
        if (apart.grads[i].grad.defined()) together.grads[i].grad.copy_(apart.grads[i].grad.mul_(100));
    }
    for (std::size_t i = 0; i < one.parameters().size(); ++i) {
      const auto &found = one.parameters()[i], &expected = two.parameters()[i];
      EXPECT_TRUE(found.tensor.equal(expected.tensor)) << found.fqn << own;
      for (const char* name : {"step", "exp_avg", "exp_avg_sq"})
        EXPECT_TRUE(test::state_of(one, i, name).equal(test::state_of(two, i, name))) << found.fqn << name << own;
    }
  }
}

// A step multiplies only those gradients in place that go to ATen.
TEST(AdamW, TakesOnePassWhereTheKernelMay) {
  const auto scaled = [](bool own, const at::Tensor& found_inf) {
    const Choice choice(own);
    Model model = make_model();
    std::vector<at::Tensor> before;
    for (const auto& part : model.grads) before.push_back(part.grad.defined() ? part.grad.clone() : part.grad);
    AdamW(model.params, {}).step({.found_inf = found_inf, .grad_factor = at::full({}, 0.5F)});
    std::vector<std::string> names;
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (!before[i].defined() || before[i].numel() == 0 || model.grads[i].grad.equal(before[i])) continue;
      EXPECT_TRUE(model.grads[i].grad.equal(before[i] * 0.5));
      names.push_back(model.params[i].fqn);
    }
    return names;
  };
  const std::vector<std::string> all = {"matrix", "scalar", "bfloat16", "strided", "long"};
  EXPECT_EQ(scaled(true, {}), (std::vector<std::string>{"bfloat16", "strided"}));
  EXPECT_EQ(scaled(false, {}), all);
  EXPECT_EQ(scaled(true, at::zeros({})), scaled(true, {})) << "what is on the host is read first";
  EXPECT_EQ(scaled(false, at::zeros({})), all);
}

TEST(AdamW, ChangesNothingWhereAGradientIsInfinite) {
  for (const bool own : {true, false}) {
    const Choice choice(own);
    Model model = make_model();
    const auto before = model.params[0].tensor.clone();
    AdamW optimizer(model.params, {});
    optimizer.step({.found_inf = at::ones({}), .grad_factor = at::full({}, std::nan(""))});
    EXPECT_TRUE(model.params[0].tensor.equal(before));
    EXPECT_EQ(test::state_of(optimizer, 0, "step").item<float>(), 0);
    EXPECT_TRUE(test::state_of(optimizer, 0, "exp_avg").equal(at::zeros_like(before)));
    EXPECT_TRUE(model.grads[0].grad.isfinite().all().item<bool>()) << "the gradients stay as evidence";
  }
}

// Repeats what the moments' dtype means: each step widens them, computes in float32, and rounds the results.
struct Rounded {
  at::Tensor param, exp_avg, exp_avg_sq;
  void step(const at::Tensor& grad, const AdamWOptions& options, int number) {
    auto wide = param.to(at::kFloat).clone(), first = exp_avg.to(at::kFloat).clone(),
         second = exp_avg_sq.to(at::kFloat).clone();
    at::_fused_adamw_({wide}, {grad.to(at::kFloat).contiguous()}, {first}, {second}, {},
                      {at::full({}, static_cast<float>(number))}, options.lr, options.beta1, options.beta2,
                      options.weight_decay, options.eps, /*amsgrad=*/false, /*maximize=*/false);
    param.copy_(wide);
    exp_avg.copy_(first);
    exp_avg_sq.copy_(second);
  }
};

// Sizes around those of the copies, which are a vector's multiples, and of parts of a vector at the end.
TEST(AdamW, RoundsMomentsOfAnotherDtypeAfterEachStep) {
  const std::vector<std::int64_t> sizes = {1, 9, 1003, (1 << 18) + 13};
  for (const auto& [dtype, state] : {std::pair(at::kFloat, at::kBFloat16), std::pair(at::kBFloat16, at::kFloat)}) {
    for (const bool own : {true, false}) {
      const Choice choice(own);
      at::manual_seed(5);
      std::vector<TrainedParameter> params;
      std::vector<Rounded> expected;
      for (const auto size : sizes) {
        params.push_back({std::to_string(size), at::randn({size}).to(dtype)});
        expected.push_back({params.back().tensor.clone(), at::zeros({size}, state), at::zeros({size}, state)});
      }
      params.push_back({"turned gradient", at::randn({700, 9}).to(dtype)});
      expected.push_back({params.back().tensor.clone(), at::zeros({700, 9}, state), at::zeros({700, 9}, state)});
      const AdamWOptions options{.state_dtype = state};
      AdamW optimizer(params, options);
      for (int step = 1; step <= 20; ++step) {
        for (std::size_t i = 0; i < params.size(); ++i) {
          auto grad = at::randn_like(params[i].tensor) * at::randn_like(params[i].tensor).exp2();
          if (grad.dim() == 2) grad = grad.t().contiguous().t();
          params[i].tensor.mutable_grad() = grad;
          expected[i].step(grad, options, step);
        }
        optimizer.step();
      }
      for (std::size_t i = 0; i < params.size(); ++i) {
        EXPECT_EQ(test::state_of(optimizer, i, "exp_avg").scalar_type(), state);
        EXPECT_TRUE(params[i].tensor.equal(expected[i].param)) << params[i].fqn << own;
        EXPECT_TRUE(test::state_of(optimizer, i, "exp_avg").equal(expected[i].exp_avg)) << params[i].fqn << own;
        EXPECT_TRUE(test::state_of(optimizer, i, "exp_avg_sq").equal(expected[i].exp_avg_sq)) << params[i].fqn << own;
      }
    }
  }
}

// Clipping, and a step that is skipped, treat moments of another dtype like all others.
TEST(AdamW, ClipsAndSkipsWithMomentsOfAnotherDtype) {
  for (const bool own : {true, false}) {
    const Choice choice(own);
    const AdamWOptions options{.state_dtype = at::kBFloat16};
    Model together = make_model(), apart = make_model();
    AdamW one(together.params, options), two(apart.params, options);
    for (int step = 0; step < 2; ++step) {
      const auto before = together.params[0].tensor.clone();
      one.step({.found_inf = at::ones({}), .grad_factor = at::full({}, std::nan(""))});
      EXPECT_TRUE(together.params[0].tensor.equal(before));
      const auto clip = clip_factor(together.grads, kMaxNorm);
      one.step({.grad_factor = clip.factor});
      clip_grad_norm(apart.grads, kMaxNorm);
      two.step();
      for (std::size_t i = 0; i < apart.grads.size(); ++i)
        if (apart.grads[i].grad.defined()) together.grads[i].grad.copy_(apart.grads[i].grad.mul_(100));
    }
    for (std::size_t i = 0; i < one.parameters().size(); ++i) {
      const auto &found = one.parameters()[i], &expected = two.parameters()[i];
      EXPECT_TRUE(found.tensor.equal(expected.tensor)) << found.fqn << own;
      for (const char* name : {"step", "exp_avg", "exp_avg_sq"})
        EXPECT_TRUE(test::state_of(one, i, name).equal(test::state_of(two, i, name))) << found.fqn << name << own;
    }
  }
}

}  // namespace
}  // namespace titan::optim
