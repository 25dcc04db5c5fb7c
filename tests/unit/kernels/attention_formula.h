// Attention by the formula in float64, forward and backward, for tests of the kernels and of the operators on them.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/attention/attention_kernel.h"
#include "tests/unit/kernels/of_this_machine.h"

namespace titan::kernels::attention_formula {

struct Inputs {
  at::Tensor q, k, v, out_grad;
};

struct Results {
  at::Tensor out, sums, q_grad, k_grad, v_grad;
};

// Inputs as a model makes them: [B, T, H, E] in memory.
inline Inputs make_inputs(at::ScalarType dtype, std::int64_t queries, std::int64_t keys, std::int64_t heads,
                          std::int64_t kv_heads, std::int64_t dim) {
  const auto make = [&](std::int64_t length, std::int64_t num_heads) {
    return at::randn({2, length, num_heads, dim}, at::kFloat).to(dtype).transpose(1, 2);
  };
  at::manual_seed(keys * 1000 + dim);
  return {make(queries, heads) * 2, make(keys, kv_heads), make(keys, kv_heads), make(queries, heads)};
}

// `sizes` are the results with the magnitude of each term that they sum up: rounding errors are fractions of them, also
// where the terms cancel.
struct Formula {
  Results values, sizes;
};

// The formula on float64 copies; query i sees the keys up to number i + offset. Gradients are by hand, so that none of
// ATen's attention kernels is involved.
inline Formula formula(const Inputs& inputs, double scale, std::int64_t offset = 0) {
  const auto wide = [](const at::Tensor& tensor) { return tensor.to(at::kDouble); };
  const std::int64_t group = inputs.q.size(1) / inputs.k.size(1);
  const at::Tensor q = wide(inputs.q), k = wide(inputs.k).repeat_interleave(group, 1),
                   v = wide(inputs.v).repeat_interleave(group, 1), out_grad = wide(inputs.out_grad);
  const at::Tensor mask = at::ones({q.size(2), k.size(2)}, at::kBool).triu(1 + offset);
  const at::Tensor scores =
      (q.matmul(k.transpose(-2, -1)) * scale).masked_fill(mask, -std::numeric_limits<double>::infinity());
  const at::Tensor weights = scores.softmax(-1);
  const auto summed = [&](const at::Tensor& grad) {
    return grad.view({grad.size(0), inputs.k.size(1), group, grad.size(2), grad.size(3)}).sum(2);
  };
  const auto results = [&](const at::Tensor& sums, const at::Tensor& score_grad, const at::Tensor& queries,
                           const at::Tensor& keys, const at::Tensor& values, const at::Tensor& grad) {
    return Results{weights.matmul(values), sums, score_grad.matmul(keys) * scale,
                   summed(score_grad.transpose(-2, -1).matmul(queries) * scale),
                   summed(weights.transpose(-2, -1).matmul(grad))};
  };
  const at::Tensor weight_grad = out_grad.matmul(v.transpose(-2, -1));
  const at::Tensor size = out_grad.abs().matmul(v.abs().transpose(-2, -1));
  const at::Tensor score_size = (q.abs().matmul(k.abs().transpose(-2, -1)) * scale).amax(-1);
  return {
      results(scores.logsumexp(-1), weights * (weight_grad - (weights * weight_grad).sum(-1, true)), q, k, v, out_grad),
      results(score_size, weights * (size + (weights * size).sum(-1, true)), q.abs(), k.abs(), v.abs(),
              out_grad.abs())};
}

inline Results run(const AttentionKernels& kernels, const Inputs& inputs, double scale, std::int64_t offset = 0) {
  const auto [out, sums] = attention_forward(kernels, inputs.q, inputs.k, inputs.v, scale, offset);
  const auto [q, k, v] =
      attention_backward(kernels, inputs.out_grad, inputs.q, inputs.k, inputs.v, out, sums, scale, offset);
  return {out, sums, q, k, v};
}

inline std::vector<const AttentionKernels*> kernels_of_this_machine() {
#if defined(__x86_64__)
  auto kernels = TITAN_KERNELS_OF_THIS_MACHINE(kAttention);
  for (const auto& [has, more] :
       {std::pair(has_bfloat16_products(), &avx512bf16::kAttention), {has_bfloat16_tiles(), &amx::kAttention}}) {
    if (has) {
      kernels.push_back(more);
    } else {
      std::cout << "not run, this processor has no such instructions: " << more->name << "\n";
    }
  }
  return kernels;
#else
  return {&plain::kAttention};
#endif
}

// bfloat16: inputs are exact and sums are in float32; each result is rounded to 8 bits, 2^-9 of its size. The
// backward takes the rounded output: the row's dot product with it is off by 2^-9, and so are score gradients.
// Kernels with bfloat16 products also round weights and score gradients, by up to 2^-8 each: a sum of them is off by
// at most that fraction of its terms' sizes.
inline double bfloat16_tolerance(const AttentionKernels& kernels) {
  const std::string name = kernels.name;
  return 3 * std::pow(2.0, -9) + (name == "avx512bf16" || name == "amx" ? std::pow(2.0, -8) : 0);
}

// Expects each result to be off by at most `tolerance` of its terms' sizes, or by half a step of float16's smallest
// numbers, 2^-24. The logarithms of sums have the absolute errors of scores, which are sums of up to 128 products in
// float32: some sqrt(128) * 6e-8 = 7e-7 of the terms' sizes.
inline void expect_within(const Results& found, const Formula& expected, double tolerance, const std::string& what,
                          double sums_tolerance = 1e-6) {
  const auto expect = [&](const char* name, const at::Tensor& one, const at::Tensor& value, const at::Tensor& size,
                          double part) {
    ASSERT_EQ(one.sizes(), value.sizes()) << what << ": " << name;
    const auto excess = (one.to(at::kDouble) - value).abs() - part * size;
    EXPECT_LE(excess.max().item<double>(), std::pow(2.0, -25)) << what << ": " << name;
  };
  const auto& [values, sizes] = expected;
  expect("out", found.out, values.out, sizes.out, tolerance);
  expect("sums", found.sums, values.sums, sizes.sums, sums_tolerance);
  expect("gradient of q", found.q_grad, values.q_grad, sizes.q_grad, tolerance);
  expect("gradient of k", found.k_grad, values.k_grad, sizes.k_grad, tolerance);
  expect("gradient of v", found.v_grad, values.v_grad, sizes.v_grad, tolerance);
}

}  // namespace titan::kernels::attention_formula
