// Tests every instruction set of this machine against what it replaces: ATen's multiplication of the gradient in
// place, and then ATen's _fused_adamw_.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cpu/rows/adamw_kernel.h"
#include "tests/unit/kernels/of_this_machine.h"

namespace titan::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
constexpr float kTiny = std::numeric_limits<float>::denorm_min();

std::vector<const AdamWKernels*> kernels_of_this_machine() { return TITAN_KERNELS_OF_THIS_MACHINE(kAdamW); }

// True if ATen rounds products and sums like these kernels: its generic code has no fused multiply-add (on x86-64),
// its code for AVX2 and AVX-512 has. Tests run with the best that ATen has for the processor;
// ATEN_CPU_CAPABILITY=default selects the generic code.
bool rounds_as_aten(const AdamWKernels& kernels) {
#if defined(__x86_64__)
  const bool is_plain = &kernels == &plain::kAdamW;
  return is_plain == (at::get_cpu_capability() == "DEFAULT" || at::get_cpu_capability() == "NO AVX");
#else
  return false;
#endif
}

struct State {
  at::Tensor param, exp_avg, exp_avg_sq;

  State clone() const { return {param.clone(), exp_avg.clone(), exp_avg_sq.clone()}; }
};

void aten_step(State& state, const at::Tensor& grad, const AdamWStep& step) {
  const auto clipped = grad.clone();
  at::_foreach_mul_({clipped}, at::scalar_tensor(step.grad_factor, at::kFloat));
  at::_fused_adamw_({state.param}, {clipped}, {state.exp_avg}, {state.exp_avg_sq}, /*max_exp_avg_sqs=*/{},
                    {at::scalar_tensor(step.step, at::kFloat)}, step.lr, step.beta1, step.beta2, step.weight_decay,
                    step.eps, /*amsgrad=*/false, /*maximize=*/false);
}

void own_step(const AdamWKernels& kernels, State& state, const at::Tensor& grad, const AdamWStep& step) {
  const AdamWTensors tensors = {state.param, grad, state.exp_avg, state.exp_avg_sq};
  ASSERT_TRUE(takes_adamw(tensors));
  adamw(kernels, tensors, step);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const auto bits = [](const at::Tensor& tensor) { return tensor.masked_fill(tensor.isnan(), kNan).view(at::kInt); };
  return a.sizes() == b.sizes() && bits(a).equal(bits(b));
}

void expect_same_bits(const State& found, const State& expected, const std::string& what) {
  EXPECT_TRUE(same_bits(found.exp_avg, expected.exp_avg)) << what << ", first moment";
  EXPECT_TRUE(same_bits(found.exp_avg_sq, expected.exp_avg_sq)) << what << ", second moment";
  EXPECT_TRUE(same_bits(found.param, expected.param)) << what << ", parameter";
}

void expect_within(const at::Tensor& found, const at::Tensor& expected, const at::Tensor& allowed,
                   const std::string& what) {
  const auto finite = expected.isfinite();
  EXPECT_TRUE(same_bits(found.masked_fill(finite, 0), expected.masked_fill(finite, 0))) << what;
  const auto excess = (found.to(at::kDouble) - expected.to(at::kDouble)).abs() - allowed;
  EXPECT_FALSE((excess.gt(0) & finite).any().item<bool>()) << what;
}

// Bounds the difference after one step from the same state, where only one side uses fused multiply-adds. u is half a
// unit in the last place relative to the number; kSmallest covers roundings below the normal numbers.
// First moment, old + x: x is rounded on one side, the sum on both: u |x| + 2 u |new|.
// Second moment, of two terms not below 0: one term is rounded on one side, the sum on both: 3 u new. Their quotient:
// 1.5 u from the root's argument, and 2 u each from root, division, sum, product and division: 11.5 u, plus the first
// moment's own relative difference. Parameter: that, plus 2 u for its sum. The decay is equal.
// The 1 % added covers products of such errors, u^2.
void expect_near(const State& found, const State& expected, const State& before, const at::Tensor& grad,
                 const AdamWStep& step, const std::string& what) {
  constexpr double kU = 1.01 / (1 << 24), kSmallest = 4 * static_cast<double>(kTiny);
  const auto wide = [](const at::Tensor& tensor) { return tensor.to(at::kDouble); };
  const auto weight = std::min(1 - step.beta1, step.beta1);
  const auto x = weight * (wide(grad) * step.grad_factor - wide(before.exp_avg)).abs();
  const auto first = kU * (x + 2 * wide(expected.exp_avg).abs()) + kSmallest;
  expect_within(found.exp_avg, expected.exp_avg, first, what + ", first moment");
  expect_within(found.exp_avg_sq, expected.exp_avg_sq, 3 * kU * wide(expected.exp_avg_sq) + kSmallest,
                what + ", second moment");
  const double size = step.lr / (1 - std::pow(step.beta1, step.step));
  // The second moment may have lost all but its last bit: the error of its root is then as large as the root.
  const auto scale =
      ((wide(expected.exp_avg_sq) - kSmallest).clamp_min(0) / (1 - std::pow(step.beta2, step.step))).sqrt() + step.eps;
  const auto update = size * wide(expected.exp_avg).abs() / scale;
  const auto param = kU * (2 * wide(expected.param).abs() + 11.5 * update) + size * first / scale + kSmallest;
  expect_within(found.param, expected.param, param, what + ", parameter");
}

struct Inputs {
  State state;
  std::vector<at::Tensor> grads;  // one per step
};

Inputs make_inputs(std::int64_t size, double grad_scale = 1) {
  at::manual_seed(static_cast<std::uint64_t>(size));
  Inputs inputs{{at::randn({size}), at::zeros({size}), at::zeros({size})}, {}};
  // Magnitudes spread over many powers of two, as in gradients.
  for (int i = 0; i < 4; ++i) inputs.grads.push_back(at::randn({size}) * at::randn({size}).exp2() * grad_scale);
  return inputs;
}

// Runs all steps of `inputs`. Where the rounding is not ATen's, each step starts from ATen's state, so that
// differences do not accumulate.
void expect_as_aten(const Inputs& inputs, AdamWStep step, const std::string& about) {
  for (const auto* kernels : kernels_of_this_machine()) {
    State aten = inputs.state.clone(), own = inputs.state.clone();
    step.step = 0;
    for (const auto& grad : inputs.grads) {
      step.step += 1;
      const State before = aten.clone();
      const auto untouched = grad.clone();
      aten_step(aten, grad, step);
      own_step(*kernels, own, grad, step);
      EXPECT_TRUE(same_bits(grad, untouched));
      const std::string what = std::string(kernels->name) + ", " + about + ", step " + std::to_string(step.step);
      if (rounds_as_aten(*kernels)) {
        expect_same_bits(own, aten, what);
      } else {
        expect_near(own, aten, before, grad, step, what);
        own = aten.clone();
      }
    }
  }
}

// Less than a vector, around one and two vectors of every width, some hundreds, and enough for several threads.
const std::int64_t kSizes[] = {1, 3, 4, 7, 8, 9, 12, 15, 16, 17, 23, 24, 25, 31, 32, 33, 100, 999, 70001};
constexpr AdamWStep kStep = {
    .lr = 8e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .step = 0, .grad_factor = 0.37F};

TEST(FusedAdamW, IsATensToTheBit) {
  for (const auto size : kSizes) expect_as_aten(make_inputs(size), kStep, std::to_string(size) + " elements");
}

TEST(FusedAdamW, IsATensWithAnyOptions) {
  const auto check = [](const std::string& what, const std::function<void(AdamWStep&)>& change) {
    AdamWStep step = kStep;
    change(step);
    expect_as_aten(make_inputs(1003), step, what);
  };
  check("without weight decay", [](AdamWStep& step) { step.weight_decay = 0; });
  check("without clipping", [](AdamWStep& step) { step.grad_factor = 1; });
  check("the first moment nearer to the gradient", [](AdamWStep& step) { step.beta1 = 0.3; });
  check("the first moment half way", [](AdamWStep& step) { step.beta1 = 0.5; });
  check("no first moment", [](AdamWStep& step) { step.beta1 = 0; });
  check("long second moment", [](AdamWStep& step) { step.beta2 = 0.9999; });
  check("large eps", [](AdamWStep& step) { step.eps = 0.1; });
  check("large decay", [](AdamWStep& step) { step.lr = 0.7, step.weight_decay = 0.9; });
  check("no learning rate", [](AdamWStep& step) { step.lr = 0; });
  // Includes rates whose product with the decay rounds differently in a fused multiply-add.
  for (int i = 1; i <= 20; ++i) check("lr " + std::to_string(i), [&](AdamWStep& step) { step.lr = 1e-3 / i; });
}

TEST(FusedAdamW, IsATensOnZerosAndNumbersNearThem) {
  auto zeros = make_inputs(77);
  for (auto& grad : zeros.grads) grad.zero_();
  expect_as_aten(zeros, kStep, "zero gradients");
  zeros.grads[1].fill_(-0.0);
  expect_as_aten(zeros, kStep, "negative zeros");
  // The squares of these gradients, or the gradients themselves, are below the normal numbers.
  for (const double scale : {1e-20, 1e-22, 1e-38, 1e-43})
    expect_as_aten(make_inputs(77, scale), kStep, "gradients of " + std::to_string(std::log10(scale)));
  auto tiny = make_inputs(77);
  for (auto& grad : tiny.grads) grad.fill_(kTiny);
  expect_as_aten(tiny, kStep, "the smallest gradients");
}

TEST(FusedAdamW, IsATensOnWhatIsNoNumber) {
  for (const float bad : {kNan, kInfinity, -kInfinity, std::numeric_limits<float>::max()})
    for (const std::int64_t at : {0, 9, 37, 44}) {  // in vectors, and in the rest at the end
      auto inputs = make_inputs(45);
      inputs.grads[1][at] = bad;
      expect_as_aten(inputs, kStep, std::to_string(bad) + " in a gradient");
    }
  for (const float factor : {kNan, 0.0F, kInfinity}) {  // factors from a NaN or infinite norm
    AdamWStep step = kStep;
    step.grad_factor = factor;
    expect_as_aten(make_inputs(45), step, "times " + std::to_string(factor));
  }
}

TEST(FusedAdamW, IsTheSameOnAnyNumberOfThreads) {
  const auto inputs = make_inputs(300007);
  const int threads = at::get_num_threads();
  for (const auto* kernels : kernels_of_this_machine()) {
    State one = inputs.state.clone(), three = inputs.state.clone();
    for (AdamWStep step = kStep; const auto& grad : inputs.grads) {
      step.step += 1;
      at::set_num_threads(1);
      own_step(*kernels, one, grad, step);
      at::set_num_threads(3);
      own_step(*kernels, three, grad, step);
    }
    expect_same_bits(three, one, kernels->name);
  }
  at::set_num_threads(threads);
}

// Holds the sums of what a step has read and written.
struct SummedStep {
  AdamWSums read, wrote;
};

SummedStep summed_step(const AdamWKernels& kernels, State& state, const at::Tensor& grad, const AdamWStep& step) {
  SummedStep out;
  adamw_and_sum(kernels, {state.param, grad, state.exp_avg, state.exp_avg_sq}, step, out.read, out.wrote);
  return out;
}

void expect_equal(const AdamWSums& found, const AdamWSums& expected, const std::string& what) {
  EXPECT_EQ(found.param, expected.param) << what << ", parameter";
  EXPECT_EQ(found.exp_avg, expected.exp_avg) << what << ", first moment";
  EXPECT_EQ(found.exp_avg_sq, expected.exp_avg_sq) << what << ", second moment";
}

AdamWSums sums_in_memory(const AdamWKernels& kernels, const State& state) {
  return {adamw_sum(kernels, state.param), adamw_sum(kernels, state.exp_avg), adamw_sum(kernels, state.exp_avg_sq)};
}

// With eps 0, the lanes beyond the end of a part compute NaN: they must not count.
TEST(SummedAdamW, ReadsWhatItWroteAndChangesNoBit) {
  for (const auto* kernels : kernels_of_this_machine())
    for (const double eps : {1e-8, 0.0})
      for (const auto size : kSizes) {
        const auto inputs = make_inputs(size);
        State plain = inputs.state.clone(), summed = inputs.state.clone();
        AdamWStep step = kStep;
        step.eps = eps;
        AdamWSums before = sums_in_memory(*kernels, summed);
        for (const auto& grad : inputs.grads) {
          step.step += 1;
          own_step(*kernels, plain, grad, step);
          const auto sums = summed_step(*kernels, summed, grad, step);
          const std::string what = std::string(kernels->name) + ", " + std::to_string(size) + " elements";
          expect_same_bits(summed, plain, what);
          expect_equal(sums.read, before, what + ", read");
          expect_equal(sums.wrote, sums_in_memory(*kernels, summed), what + ", written");
          before = sums.wrote;
        }
      }
}

TEST(SummedAdamW, EveryBitThatChangesChangesItsSum) {
  for (const auto* kernels : kernels_of_this_machine())
    for (const std::int64_t size : {1, 17, 33, 40}) {
      const auto values = make_inputs(size).state.param;
      const auto expected = adamw_sum(*kernels, values);
      auto* const words = reinterpret_cast<std::uint32_t*>(values.mutable_data_ptr<float>());
      for (std::int64_t i = 0; i < size; ++i)
        for (int bit = 0; bit < 32; ++bit) {
          words[i] ^= std::uint32_t{1} << bit;
          EXPECT_NE(adamw_sum(*kernels, values), expected) << kernels->name << ", bit " << bit << " of " << i;
          words[i] ^= std::uint32_t{1} << bit;
        }
      // Two signs, which a plain sum of words would not show.
      if (size > 1) {
        words[0] ^= 0x80000000U;
        words[size - 1] ^= 0x80000000U;
        EXPECT_NE(adamw_sum(*kernels, values), expected) << kernels->name << ", two signs of " << size;
      }
    }
}

TEST(SummedAdamW, AChangeInAnyBlockChangesTheSum) {
  const auto values = make_inputs(300007).state.param;
  for (const auto* kernels : kernels_of_this_machine()) {
    const auto expected = adamw_sum(*kernels, values);
    for (const std::int64_t at : {0, 32767, 32768, 200000, 300006}) {
      auto& word = reinterpret_cast<std::uint32_t*>(values.mutable_data_ptr<float>())[at];
      word ^= 1;
      EXPECT_NE(adamw_sum(*kernels, values), expected) << kernels->name << ", element " << at;
      word ^= 1;
    }
    EXPECT_EQ(adamw_sum(*kernels, values), expected);
  }
}

TEST(SummedAdamW, SumsAreTheSameOnAnyNumberOfThreads) {
  const auto inputs = make_inputs(300007);
  const int threads = at::get_num_threads();
  AdamWStep step = kStep;
  step.step = 1;
  for (const auto* kernels : kernels_of_this_machine()) {
    State one = inputs.state.clone(), three = inputs.state.clone();
    at::set_num_threads(1);
    const auto of_one = summed_step(*kernels, one, inputs.grads[0], step);
    at::set_num_threads(3);
    const auto of_three = summed_step(*kernels, three, inputs.grads[0], step);
    expect_same_bits(three, one, kernels->name);
    expect_equal(of_three.read, of_one.read, kernels->name);
    expect_equal(of_three.wrote, of_one.wrote, kernels->name);
  }
  at::set_num_threads(threads);
}

TEST(FusedAdamW, TakesContiguousFloatsOfOneShape) {
  const auto fit = at::ones({4, 6});
  const auto takes = [](const at::Tensor& param, const at::Tensor& grad, const at::Tensor& moment) {
    return takes_adamw({param, grad, moment, moment});
  };
  EXPECT_TRUE(takes(fit, fit.clone(), fit.clone()));
  EXPECT_FALSE(takes(fit, fit.to(at::kBFloat16), fit));
  EXPECT_FALSE(takes(fit.to(at::kBFloat16), fit.to(at::kBFloat16), fit.to(at::kBFloat16)));
  EXPECT_FALSE(takes(fit, at::ones({6, 4}).t(), fit));
  EXPECT_FALSE(takes(fit, at::ones({24}), fit));
  EXPECT_FALSE(takes(fit, fit, {}));
  EXPECT_FALSE(takes(fit.to(at::kMeta), fit.to(at::kMeta), fit.to(at::kMeta)));
}

TEST(FusedAdamW, AutogradSeesTheChange) {
  State state{at::ones({5}), at::zeros({5}), at::zeros({5})};
  const auto before = state.param._version();
  AdamWStep step = kStep;
  step.step = 1;
  own_step(best_adamw(), state, at::ones({5}), step);
  EXPECT_GT(state.param._version(), before);
}

}  // namespace
}  // namespace titan::kernels
