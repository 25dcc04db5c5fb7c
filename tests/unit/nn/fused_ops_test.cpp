// Tests the fused operators within autograd, against ATen's. tests/unit/kernels/fused_ops_test.cpp tests their values.
#include "nn/ops/fused_ops.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/operators.h"
#include "nn/ops/rope.h"

namespace titan::nn {
namespace {

using Tensors = std::vector<at::Tensor>;

struct Op {
  const char* name;
  const char* node;  // autograd's name
  std::function<at::Tensor(const Tensors&)> fused, composed;
  Tensors inputs;
};

std::vector<Op> ops(at::ScalarType dtype) {
  at::manual_seed(1);
  const auto make = [&](at::IntArrayRef sizes) { return at::randn(sizes, at::kFloat).to(dtype); };
  const auto table = precompute_freqs_cis(32, 20, 10000, std::nullopt, at::kCPU);
  const auto on = [table, on_meta = table.to(at::kMeta)](const at::Tensor& x) { return x.is_meta() ? on_meta : table; };
  return {
      {"rms_norm",
       "FusedRmsNorm",
       [](const Tensors& in) { return rms_norm(in[0], in[1], 1e-5); },
       [](const Tensors& in) { return composed::rms_norm(in[0], in[1], 1e-5); },
       {make({2, 17, 40}), make({40})}},
      {"add_rms_norm",
       "FusedAddRmsNorm",
       [](const Tensors& in) { return add_rms_norm(in[0], in[1], in[2], 1e-5).normed; },
       [](const Tensors& in) { return composed::add_rms_norm(in[0], in[1], in[2], 1e-5).normed; },
       {make({2, 17, 40}), make({2, 17, 40}), make({40})}},
      {"apply_rotary_emb",
       "FusedRotaryEmbedding",
       [on](const Tensors& in) { return apply_rotary_emb(in[0], on(in[0])); },
       [on](const Tensors& in) { return composed::apply_rotary_emb(in[0], on(in[0])); },
       {make({2, 17, 3, 32})}},
      {"apply_rotary_emb_halves",
       "FusedRotaryEmbedding",
       [on](const Tensors& in) { return apply_rotary_emb_halves(in[0], on(in[0])); },
       [on](const Tensors& in) { return composed::apply_rotary_emb_halves(in[0], on(in[0])); },
       {make({2, 17, 3, 32})}},
      {"swiglu",
       "FusedSwiglu",
       [](const Tensors& in) { return swiglu(in[0], in[1]); },
       [](const Tensors& in) { return composed::swiglu(in[0], in[1]); },
       {make({2, 17, 40}), make({2, 17, 40})}},
  };
}

Tensors leaves_of(const Tensors& inputs) {
  Tensors leaves;
  for (const auto& input : inputs) leaves.push_back(input.detach().clone().set_requires_grad(true));
  return leaves;
}

bool is_fused(const at::Tensor& out, const Op& op) {
  return out.grad_fn() && out.grad_fn()->name().find(op.node) != std::string::npos;
}

// float32: sums of some 40 products of numbers around 1, which may cancel. bfloat16: one rounding may go the other way.
double tolerance(at::ScalarType dtype) { return dtype == at::kFloat ? 1e-5 : 1.0 / 128; }

TEST(FusedOps, GiveATensResultsAndGradients) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const Op& op : ops(dtype)) {
      const auto mine = leaves_of(op.inputs), theirs = leaves_of(op.inputs);
      const auto out = op.fused(mine), aten = op.composed(theirs);
      ASSERT_TRUE(is_fused(out, op)) << op.name;
      const auto close = [&](const at::Tensor& a, const at::Tensor& b) {
        return a.scalar_type() == dtype && at::allclose(a, b, tolerance(dtype), tolerance(dtype) / 10);
      };
      EXPECT_TRUE(close(out, aten)) << op.name;
      const auto out_grad = at::randn(out.sizes()).to(dtype);
      // Runs backward twice, as a graph that is kept allows: gradients add up.
      for (int i = 0; i < 2; ++i) {
        torch::autograd::backward({out}, {out_grad}, /*retain_graph=*/true);
        torch::autograd::backward({aten}, {out_grad}, /*retain_graph=*/true);
      }
      for (std::size_t i = 0; i < mine.size(); ++i)
        EXPECT_TRUE(close(mine[i].grad(), theirs[i].grad())) << op.name << i;
    }
}

// The gradient of a sum is one expanded number in memory; that of attention's queries has transposed strides.
TEST(FusedOps, TakeGradientsThatAreViews) {
  for (const Op& op : ops(at::kFloat)) {
    const auto mine = leaves_of(op.inputs), theirs = leaves_of(op.inputs);
    op.fused(mine).transpose(1, 2).contiguous().square().sum().backward();
    op.composed(theirs).transpose(1, 2).contiguous().square().sum().backward();
    op.fused(mine).sum().backward();
    op.composed(theirs).sum().backward();
    for (std::size_t i = 0; i < mine.size(); ++i)
      EXPECT_TRUE(at::allclose(mine[i].grad(), theirs[i].grad(), 1e-5, 1e-5)) << op.name << i;
  }
}

TEST(FusedOps, RunWithoutAGraph) {
  for (const Op& op : ops(at::kBFloat16)) {
    const auto expected = op.fused(leaves_of(op.inputs)).detach();
    {
      const at::NoGradGuard no_grad;
      const auto out = op.fused(leaves_of(op.inputs));
      EXPECT_FALSE(out.requires_grad()) << op.name;
      EXPECT_TRUE(out.equal(expected)) << op.name;
    }
    {
      const c10::InferenceMode inference;
      EXPECT_TRUE(op.fused(op.inputs).equal(expected)) << op.name;
    }
    EXPECT_FALSE(op.fused(op.inputs).requires_grad()) << op.name;
  }
}

// An input that takes no gradient gets none; the others get theirs.
TEST(FusedOps, ServeInputsOneByOne) {
  for (const Op& op : ops(at::kFloat)) {
    for (std::size_t wanted = 0; wanted < op.inputs.size(); ++wanted) {
      const auto all = leaves_of(op.inputs);
      op.fused(all).square().sum().backward();
      auto some = op.inputs;
      some[wanted] = leaves_of(op.inputs)[wanted];
      op.fused(some).square().sum().backward();
      for (std::size_t i = 0; i < some.size(); ++i) {
        EXPECT_EQ(some[i].grad().defined(), i == wanted) << op.name;
      }
      EXPECT_TRUE(some[wanted].grad().equal(all[wanted].grad())) << op.name;
    }
  }
}

TEST(FusedOps, RefuseSecondDerivatives) {
  for (const Op& op : ops(at::kFloat)) {
    const auto leaves = leaves_of(op.inputs);
    const auto out = op.fused(leaves).square().sum();
    EXPECT_THROW(torch::autograd::grad({out}, leaves, {}, /*retain_graph=*/true, /*create_graph=*/true), InternalError)
        << op.name;
  }
}

// Inputs that they do not take go to ATen.
TEST(FusedOps, LeaveTheRestToATen) {
  for (const Op& op : ops(at::kDouble)) {
    const auto leaves = leaves_of(op.inputs);
    EXPECT_FALSE(is_fused(op.fused(leaves), op)) << op.name;
  }
  for (const Op& op : ops(at::kFloat)) {
    if (op.inputs.size() == 1) continue;  // the rotation takes all strides
    auto leaves = leaves_of(op.inputs);
    leaves[0] = leaves[0].transpose(-1, 0).contiguous().transpose(-1, 0);
    const auto out = op.fused(leaves);
    EXPECT_FALSE(is_fused(out, op)) << op.name;
    EXPECT_TRUE(out.equal(op.composed(leaves))) << op.name;
  }
}

// Takes the CPU's kernels out of use while it lives.
class OutOfUse {
 public:
  OutOfUse() : before_(kernels::uses_fused_kernels(at::kCPU)) { kernels::use_fused_kernels(at::kCPU, false); }
  ~OutOfUse() { kernels::use_fused_kernels(at::kCPU, before_); }
  OutOfUse(const OutOfUse&) = delete;
  OutOfUse& operator=(const OutOfUse&) = delete;

 private:
  bool before_;
};

TEST(FusedOps, AreATensWhileTheKernelsAreOutOfUse) {
  for (const Op& op : ops(at::kFloat)) {
    const auto leaves = leaves_of(op.inputs);
    const auto before = op.fused(leaves);
    EXPECT_TRUE(is_fused(before, op)) << op.name;
    {
      const OutOfUse out_of_use;
      EXPECT_FALSE(kernels::uses_fused_kernels(at::kCPU));
      const auto out = op.fused(leaves);
      EXPECT_FALSE(is_fused(out, op)) << op.name;
      EXPECT_TRUE(out.equal(op.composed(leaves))) << op.name;
      EXPECT_THROW(before.sum().backward(), InternalError) << op.name;
    }
    EXPECT_TRUE(op.fused(leaves).equal(before)) << op.name;
  }
}

TEST(FusedOps, HaveTheirNamesInProfiles) {
  static std::vector<std::string> names;
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
        names.emplace_back(function.name());
        return nullptr;
      }).scopes({at::RecordScope::FUNCTION}));
  swiglu(at::ones({2, 8}), at::ones({2, 8}));
  at::removeCallback(handle);
  EXPECT_TRUE(std::ranges::find(names, "titan::swiglu") != names.end());
}

// Returns the outputs and the gradients of x, delta and weight. The weight's and the given gradients may be undefined.
using AddRmsNorm = std::function<NormedSum(const at::Tensor&, const at::Tensor&, const at::Tensor&)>;
Tensors results_of(const AddRmsNorm& op, const Tensors& inputs, const at::Tensor& sum_grad,
                   const at::Tensor& normed_grad) {
  const auto leaves = leaves_of(inputs);
  const auto [sum, normed] = op(leaves[0], leaves[1], leaves[2]);
  Tensors outputs, grads;
  for (const auto& [output, grad] : {std::pair(sum, sum_grad), std::pair(normed, normed_grad)}) {
    if (!grad.defined()) continue;
    outputs.push_back(output);
    grads.push_back(grad);
  }
  torch::autograd::backward(outputs, grads);
  return {sum.detach(), normed.detach(), leaves[0].grad(), leaves[1].grad(), leaves[2].grad()};
}

TEST(FusedOps, NormOfASumIsTheTwoOperatorsToTheBit) {
  const auto fused = [](const auto& x, const auto& delta, const auto& weight) {
    return add_rms_norm(x, delta, weight, 1e-5);
  };
  const auto two = [](const auto& x, const auto& delta, const auto& weight) {
    const auto sum = x + delta;
    return NormedSum{sum, rms_norm(sum, weight, 1e-5)};
  };
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto make = [&](at::IntArrayRef sizes) { return at::randn(sizes, at::kFloat).to(dtype); };
    at::manual_seed(1);
    const Tensors inputs = {make({2, 17, 40}), make({2, 17, 40}), make({40})};
    const at::Tensor none, rows = make({2, 17, 40}), columns = make({2, 40, 17}).transpose(1, 2), one = make({1, 1, 1});
    const std::pair<at::Tensor, at::Tensor> grads[] = {
        {rows, none}, {none, rows}, {rows, columns}, {columns, rows}, {one.expand_as(rows), columns}};
    for (const auto& [sum_grad, normed_grad] : grads) {
      const auto found = results_of(fused, inputs, sum_grad, normed_grad);
      const auto expected = results_of(two, inputs, sum_grad, normed_grad);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(found[i].defined(), expected[i].defined()) << i;
        if (!expected[i].defined()) continue;
        EXPECT_TRUE(found[i].equal(expected[i])) << i;
      }
    }
  }
}

// Records the allocations of tensors on a device while it lives.
class Meter : public c10::Allocator {
 public:
  Meter(c10::DeviceType device, std::vector<std::size_t>& sizes)
      : device_(device), inner_(c10::GetAllocator(device)), sizes_(sizes) {
    c10::SetAllocator(device, this, /*priority=*/110);
  }
  ~Meter() override { c10::SetAllocator(device_, inner_, /*priority=*/110); }
  c10::DataPtr allocate(std::size_t bytes) override {
    sizes_.push_back(bytes);
    return inner_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { inner_->copy_data(to, from, bytes); }

 private:
  c10::DeviceType device_;
  c10::Allocator* inner_;
  std::vector<std::size_t>& sizes_;
};

// train/dry_run/memory_estimate.h relies on this.
TEST(FusedOps, TakeTheSameMemoryOnMeta) {
  for (const Op& op : ops(at::kBFloat16)) {
    const auto sizes_on = [&](c10::DeviceType device) {
      Tensors leaves;
      for (const auto& input : op.inputs) leaves.push_back(input.to(device).detach().set_requires_grad(true));
      const auto out_grad = at::empty(op.inputs[0].sizes(), op.inputs[0].options().device(device));
      std::vector<std::size_t> sizes;
      const Meter meter(device, sizes);
      const auto out = op.fused(leaves);
      EXPECT_TRUE(is_fused(out, op)) << op.name;
      EXPECT_EQ(out.device().type(), device);
      torch::autograd::grad({out}, leaves, {out_grad});
      return sizes;
    };
    const auto on_cpu = sizes_on(at::kCPU);
    EXPECT_FALSE(on_cpu.empty());
    EXPECT_EQ(sizes_on(at::kMeta), on_cpu) << op.name;
  }
}

}  // namespace
}  // namespace titan::nn
