// Tests that need a device. Run by scripts/gpu_check.sh.
#include "distributed/device.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <cmath>
#include <string_view>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "distributed/process_group.h"
#include "kernels/device/device_operators.h"
#include "kernels/operators.h"
#include "nn/documents.h"
#include "nn/ops/kept_ops.h"
#include "nn/ops/op_trace.h"
#include "nn/ops/part_attention.h"
#include "nn/random/counter_rng.h"

namespace titan {
namespace {

class CudaDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = dist::load_accelerator_module(); !reason.empty()) GTEST_SKIP() << reason;
    module_ = dist::accelerator();
    module_->set_device(0);
  }
  const dist::AcceleratorModule* module_ = nullptr;
  const at::Device device_{c10::DeviceType::CUDA, 0};
};

constexpr std::uint64_t kSeed = 42, kStream = 0xfedcba9876543210u;
constexpr std::int64_t kRoom = 8;

// Fills elements [offset, offset + numel) of device memory and compares all of the buffer, including the margins.
void expect_host_values(at::Device device, std::int64_t offset, std::int64_t numel, std::int64_t first_index) {
  auto on_device = at::full({offset + numel + kRoom}, -1.0f, at::TensorOptions().device(device));
  auto on_host = at::full({offset + numel + kRoom}, -1.0f);
  nn::fill_counter_uniform(on_device.narrow(0, offset, numel), kSeed, kStream, first_index);
  nn::fill_counter_uniform(on_host.narrow(0, offset, numel), kSeed, kStream, first_index);
  EXPECT_TRUE(on_device.cpu().equal(on_host)) << "offset " << offset << " numel " << numel << " first " << first_index;
}

TEST_F(CudaDevice, FillsTheHostsBitsAtEveryAlignmentAndLength) {
  for (std::int64_t first = 0; first < 8; ++first) {
    for (std::int64_t numel = 0; numel <= 20; ++numel) {
      for (const std::int64_t offset : {0, 1, 3}) expect_host_values(device_, offset, numel, first);
    }
  }
}

// More groups than the grid has threads, and indices beyond 32 bits.
TEST_F(CudaDevice, FillsTheHostsBitsInLargeTensors) {
  expect_host_values(device_, 1, 5'000'003, 2);
  expect_host_values(device_, 0, 5'000'003, (std::int64_t{1} << 34) - 1'000'001);
}

// The fill is queued behind matmuls that overwrite the same memory and take longer than its launch.
TEST_F(CudaDevice, FillsOnTheCurrentStream) {
  const auto stream = c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_);
  const c10::StreamGuard guard(stream);
  const auto a = at::ones({4096, 4096}, at::TensorOptions().device(device_));
  auto out = at::empty({4096, 4096}, a.options());
  for (int i = 0; i < 20; ++i) at::mm_out(out, a, a);
  nn::fill_counter_uniform(out.view(-1), kSeed, kStream, 0);
  auto expected = at::empty({4096 * 4096});
  nn::fill_counter_uniform(expected, kSeed, kStream, 0);
  EXPECT_TRUE(out.cpu().view(-1).equal(expected));
}

TEST_F(CudaDevice, TellsNameCapacityAndPeakMemory) {
  constexpr std::int64_t kBytes = 64 << 20;
  EXPECT_FALSE(module_->device_name(0).empty());
  EXPECT_GT(module_->device_capacity_bytes(0), std::int64_t{1} << 30);
  module_->reset_peak_memory(0);
  const auto before = module_->peak_reserved_bytes(0);
  const auto held = at::empty({before + kBytes}, at::TensorOptions().device(device_).dtype(at::kByte));
  EXPECT_GE(module_->peak_reserved_bytes(0), before + kBytes);
  EXPECT_LE(module_->peak_reserved_bytes(0), module_->device_capacity_bytes(0));
  EXPECT_LE(module_->device_free_bytes(0), module_->device_capacity_bytes(0) - before - kBytes);
  EXPECT_EQ(module_->device_uuid(0).size(), 16U);
  EXPECT_EQ(module_->why_no_kernels(0), "");
}

// Results of the fused operators on `x`'s device, with gradients: RMSNorm (also of a sum), rotation both ways, SwiGLU.
// `ops` has the operators as members: DeviceOperators, or those of the dispatcher.
template <typename Operators>
std::vector<at::Tensor> fused_results(const Operators& ops, const at::Tensor& x, const at::Tensor& y,
                                      const at::Tensor& grad, const at::Tensor& weight, const at::Tensor& factors) {
  const auto [normed, rrms] = ops.rms_norm(x, weight, 1e-5);
  const auto [sum, normed_sum, rrms_of_sum] = ops.add_rms_norm(x, y, weight, 1e-5);
  const auto [x_grad, weight_grad] = ops.rms_norm_backward(grad, x, weight, rrms, std::nullopt);
  const auto [sum_grad, sum_weight_grad] = ops.rms_norm_backward(grad, sum, weight, rrms_of_sum, y);
  const auto heads = x.view({1, x.size(0), -1, 2 * factors.size(1)});
  const auto [gate_grad, up_grad] = ops.swiglu_backward(grad, x, y);
  return {normed,
          rrms,
          sum,
          normed_sum,
          x_grad,
          weight_grad,
          sum_grad,
          sum_weight_grad,
          gate_grad,
          up_grad,
          ops.rotate(heads, factors, false),
          ops.rotate(heads, factors, true),
          ops.rotate_halves(heads, factors, false),
          ops.rotate_halves(heads, factors, true),
          ops.swiglu(x, y)};
}

struct Dispatched {
  decltype(ops::rms_norm)& rms_norm = ops::rms_norm;
  decltype(ops::add_rms_norm)& add_rms_norm = ops::add_rms_norm;
  decltype(ops::rms_norm_backward)& rms_norm_backward = ops::rms_norm_backward;
  decltype(ops::rotate)& rotate = ops::rotate;
  decltype(ops::rotate_halves)& rotate_halves = ops::rotate_halves;
  decltype(ops::swiglu)& swiglu = ops::swiglu;
  decltype(ops::swiglu_backward)& swiglu_backward = ops::swiglu_backward;
};

// Host and device do the same arithmetic in the same order (kernels/portable/fused_lanes.h). Results may differ by
// fused multiply-adds and by the exponential function: some float32 units of the largest term, and one bfloat16 unit
// where that crosses a rounding boundary.
TEST_F(CudaDevice, FusedOperatorsAreTheHosts) {
  kernels::use_fused_kernels(at::kCUDA, true);
  const device::DeviceOperators host(c10::DeviceType::CPU, device::host_launches());
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const std::int64_t dim : {64, 2048, 4096 + 64, 16384})
      for (const std::int64_t rows : {1, 37, 1100}) {
        const auto make = [&](at::IntArrayRef sizes) { return at::randn(sizes).to(dtype); };
        const auto x = make({rows, dim}), y = make({rows, dim}), grad = make({rows, dim}), weight = make({dim});
        const auto angles = at::randn({rows, 32});
        const auto factors = at::polar(at::ones_like(angles), angles);
        const auto expected = fused_results(host, x, y, grad, weight, factors);
        const auto there = [&](const at::Tensor& tensor) { return tensor.to(device_); };
        ASSERT_TRUE(std::get<0>(ops::add_rms_norm(there(x), there(y), there(weight), 1e-5)).defined());
        const auto found = fused_results(Dispatched(), there(x), there(y), there(grad), there(weight), there(factors));
        for (std::size_t i = 0; i < found.size(); ++i) {
          const auto a = found[i].cpu().to(at::kDouble), b = expected[i].to(at::kDouble);
          const double relative = expected[i].scalar_type() == at::kFloat ? 1e-5 : 1.0 / 128;
          EXPECT_TRUE(at::allclose(a, b, relative, 1e-5 * b.abs().max().item<double>()))
              << dtype << " " << rows << " x " << dim << ", result " << i << ": off by "
              << (a - b).abs().max().item<double>();
        }
      }
  kernels::use_fused_kernels(at::kCUDA, false);
}

// A device may have an instruction that rounds to bfloat16, where the host computes with integers. A sum of two numbers
// is rounded in no other place. Pairs of random bits have ties, numbers below the smallest normal one, infinite numbers
// and NaN.
TEST_F(CudaDevice, RoundsToBFloat16AsTheHost) {
  kernels::use_fused_kernels(at::kCUDA, true);
  const device::DeviceOperators host(c10::DeviceType::CPU, device::host_launches());
  at::manual_seed(8);
  const auto make = [] { return at::randint(-32768, 32768, {256, 4096}, at::kShort).view(at::kBFloat16); };
  const auto x = make(), near = x * (1 + at::randn({256, 4096}) / 256).to(at::kBFloat16), far = make();
  const auto weight = at::ones({4096}, at::kBFloat16);
  EXPECT_TRUE(x.isnan().any().item<bool>() && x.isinf().any().item<bool>());
  for (const auto& y : {near, -near, far}) {
    const auto expected = std::get<0>(host.add_rms_norm(x, y, weight, 1e-5));
    const auto found = std::get<0>(ops::add_rms_norm(x.to(device_), y.to(device_), weight.to(device_), 1e-5)).cpu();
    EXPECT_TRUE(found.isnan().equal(expected.isnan()));
    EXPECT_TRUE(found.nan_to_num(0, INFINITY, -INFINITY).equal(expected.nan_to_num(0, INFINITY, -INFINITY)));
  }
  kernels::use_fused_kernels(at::kCUDA, false);
}

// Output and gradients of attention in float64, by the formula, and for each the sum of its terms' absolute values, to
// which rounding errors are relative. q [B, H, N, E], k and v [B, K, S, E]; query i sees the keys up to i + offset.
struct Attended {
  std::array<at::Tensor, 4> results;  // out and the gradients of q, k, v
  std::array<at::Tensor, 4> terms;
};

Attended attend_by_formula(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                           const at::Tensor& grad, std::int64_t offset = 0) {
  const auto group = q.size(1) / keys.size(1);
  const auto k = keys.repeat_interleave(group, 1), v = values.repeat_interleave(group, 1);
  const auto scale = 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  const auto mask = at::ones({q.size(2), k.size(2)}, at::kBool).triu(1 + offset);
  const auto p = (q.matmul(k.transpose(2, 3)) * scale).masked_fill(mask, -INFINITY).softmax(-1);
  const auto out = p.matmul(v);
  const auto p_grad = grad.matmul(v.transpose(2, 3)), p_terms = grad.abs().matmul(v.abs().transpose(2, 3));
  const auto s_grad = p * (p_grad - (grad * out).sum(-1, true)) * scale;
  const auto s_terms = p * (p_terms + (grad * out).abs().sum(-1, true)) * scale;
  const auto of_group = [&](const at::Tensor& x) { return x.unflatten(1, {keys.size(1), group}).sum(2); };
  return {{out, s_grad.matmul(k), of_group(s_grad.transpose(2, 3).matmul(q)), of_group(p.transpose(2, 3).matmul(grad))},
          {p.matmul(v.abs()), s_terms.matmul(k.abs()), of_group(s_terms.transpose(2, 3).matmul(q.abs())),
           of_group(p.transpose(2, 3).matmul(grad.abs()))}};
}

struct Kernel {
  const char* name;
  at::ScalarType dtype;
  bool cudnn, flash, efficient, math;
};
// The choice of "auto", and each kernel alone in the dtypes that it supports.
constexpr Kernel kKernels[] = {
    {"auto", at::kBFloat16, true, true, true, true},     {"cudnn", at::kBFloat16, true, false, false, false},
    {"flash", at::kBFloat16, false, true, false, false}, {"efficient", at::kBFloat16, false, false, true, false},
    {"math", at::kBFloat16, false, false, false, true},  {"auto", at::kHalf, true, true, true, true},
    {"auto", at::kFloat, true, true, true, true},        {"efficient", at::kFloat, false, false, true, false}};

void allow(bool cudnn, bool flash, bool efficient, bool math) {
  auto& context = at::globalContext();
  context.setSDPUseCuDNN(cudnn);
  context.setSDPUseFlash(flash);
  context.setSDPUseMemEfficient(efficient);
  context.setSDPUseMath(math);
}

// A kernel rounds products of inputs, probabilities and outputs to the dtype, once each: 4 roundings of the terms. In
// float32, sums of up to 300 terms reach that; 16 units allow for any order.
TEST_F(CudaDevice, AttentionIsTheFormulas) {
  at::manual_seed(5);
  const auto T = 300;
  for (const auto& kernel : kKernels) {
    const auto draw = [&](std::int64_t heads) { return at::randn({2, heads, T, 64}).to(kernel.dtype); };
    const auto q = draw(8), k = draw(2), v = draw(2), grad = draw(8);
    const auto wide = [](const at::Tensor& x) { return x.to(at::kDouble); };
    const auto expected = attend_by_formula(wide(q), wide(k), wide(v), wide(grad));
    const double unit = kernel.dtype == at::kBFloat16 ? 0x1p-8 : kernel.dtype == at::kHalf ? 0x1p-11 : 0x1p-23;
    const double bound = (kernel.dtype == at::kFloat ? 16 : 4) * unit;
    for (const bool is_kept : {false, true}) {
      const auto leaf = [&](const at::Tensor& x) { return x.to(device_).requires_grad_(true); };
      const auto on_device = std::array{leaf(q), leaf(k), leaf(v)};
      allow(kernel.cudnn, kernel.flash, kernel.efficient, kernel.math);
      const auto attend = [&] { return nn::causal_attention(on_device[0], on_device[1], on_device[2]); };
      at::Tensor out;
      if (is_kept) {  // as recomputation by operator runs it
        nn::OpTrace trace([](const nn::Op&) { return true; });
        const nn::OpTrace::Scope scope(trace);
        {
          const at::NoGradGuard no_grad;
          attend();
        }
        trace.start_recomputation(trace.release_kept(), /*check=*/true, /*verbose=*/false);
        out = attend();
        trace.finish_recomputation();
      } else {
        out = attend();
      }
      auto results = torch::autograd::grad({out}, {on_device[0], on_device[1], on_device[2]}, {grad.to(device_)});
      allow(true, true, true, true);
      results.insert(results.begin(), out.detach());
      for (std::size_t i = 0; i < results.size(); ++i) {
        const auto error = (wide(results[i].cpu()) - expected.results[i]).abs() / expected.terms[i].clamp_min(1e-3);
        EXPECT_LE(error.max().item<double>(), bound)
            << kernel.name << " in " << kernel.dtype << (is_kept ? ", kept" : "") << ", result " << i;
      }
    }
  }
}

// As above, with a merge of two parts: two more roundings of terms in 16 bits. The kernels' sums have shapes of their
// own, which their backwards take again. Without a fused kernel there is nothing to merge.
TEST_F(CudaDevice, AttentionOfAPartIsTheFormulas) {
  at::manual_seed(6);
  for (const auto& kernel : kKernels) {
    if (std::string_view(kernel.name) == "math") continue;
    for (const auto& [queries, keys, offset] :
         {std::array<std::int64_t, 3>{300, 300, 0}, {300, 410, 409}, {200, 333, 133}, {300, 200, 70}}) {
      const auto draw = [&, length = queries](std::int64_t heads) {
        return at::randn({2, heads, length, 64}).to(kernel.dtype);
      };
      const auto draw_keys = [&, length = keys] { return at::randn({2, 2, length, 64}).to(kernel.dtype); };
      const auto q = draw(8), k = draw_keys(), v = draw_keys(), grad = draw(8);
      const auto wide = [](const at::Tensor& x) { return x.to(at::kDouble); };
      const auto expected = attend_by_formula(wide(q), wide(k), wide(v), wide(grad), offset);
      const double unit = kernel.dtype == at::kBFloat16 ? 0x1p-8 : kernel.dtype == at::kHalf ? 0x1p-11 : 0x1p-23;
      const double bound = (kernel.dtype == at::kFloat ? 16 : 6) * unit;
      const auto there = [&](const at::Tensor& x) { return x.to(device_); };
      allow(kernel.cudnn, kernel.flash, kernel.efficient, kernel.math);
      const auto [out, sums] = nn::attend_part(there(q), there(k), there(v), offset);
      const auto [of_q, of_k, of_v] =
          nn::attend_part_backward(there(grad), there(q), there(k), there(v), out, sums, offset);
      allow(true, true, true, true);
      EXPECT_EQ(sums.sizes(), q.sizes().slice(0, 3));
      const std::array results = {out, of_q, of_k, of_v};
      for (std::size_t i = 0; i < results.size(); ++i) {
        const auto error = (wide(results[i].cpu()) - expected.results[i]).abs() / expected.terms[i].clamp_min(1e-3);
        EXPECT_LE(error.max().item<double>(), bound)
            << kernel.name << " in " << kernel.dtype << ", offset " << offset << ", result " << i;
      }
    }
  }
}

// The formula keeps T x T scores for each head, 2 GiB of them here.
TEST_F(CudaDevice, Float32WithGroupedQueriesKeepsNoScores) {
  const auto draw = [&](std::int64_t heads) {
    return at::randn({1, heads, 4096, 64}, at::TensorOptions().device(device_)).requires_grad_(true);
  };
  const auto q = draw(32), k = draw(8), v = draw(8);
  module_->reset_peak_memory(0);
  nn::causal_attention(q, k, v).sum().backward();
  EXPECT_LT(module_->peak_active_bytes(0), std::int64_t{1} << 30);
}

// Output and gradients of attention within documents, 8 heads of queries over 4 of keys and values.
std::vector<at::Tensor> attend_within_documents(const at::Tensor& drawn, const at::Tensor& lengths,
                                                const at::Tensor& bounds) {
  const auto leaf = [&](std::int64_t from, std::int64_t heads) {
    return drawn.narrow(2, from, heads).transpose(1, 2).detach().requires_grad_(true);
  };
  const auto q = leaf(0, 8), k = leaf(8, 4), v = leaf(12, 4);
  const auto out = nn::document_attention(q, k, v, lengths, bounds);
  auto results = torch::autograd::grad({(out * at::arange(64, drawn.options()).sin()).sum()}, {q, k, v});
  results.push_back(out.detach());
  return results;
}

// Both are flash attention in bfloat16 but may split a document into other blocks: 2 units of the largest element.
TEST_F(CudaDevice, AttendsWithinDocumentsInOneKernelAsInOneEach) {
  const auto drawn = at::randn({2, 1024, 16, 64}, at::TensorOptions().device(device_).dtype(at::kBFloat16));
  const auto lengths = at::tensor(std::vector<std::int64_t>{700, 1, 323, 17, 1007}, at::kLong);
  const auto bounds = nn::document_bounds(lengths, device_);
  const auto apart = attend_within_documents(drawn, lengths, {});
  const auto together = attend_within_documents(drawn, lengths, bounds);
  for (std::size_t i = 0; i < apart.size(); ++i) {
    const auto expected = apart[i].to(at::kFloat), found = together[i].to(at::kFloat);
    EXPECT_LE((found - expected).abs().max().item<float>(), expected.abs().max().item<float>() / 128) << i;
  }
}

// One rank: NCCL starts, its collectives run and keep order with the current stream. Two ranks need two devices.
TEST_F(CudaDevice, RunsNcclCollectives) {
  auto backend = module_->make_backend(c10::make_intrusive<c10d::HashStore>(), 0, 1, std::chrono::seconds(60));
  const auto input = at::arange(1000, at::TensorOptions().device(device_).dtype(at::kFloat));
  auto gathered = at::zeros({1000}, input.options());
  auto mutable_input = input.clone();
  backend->_allgather_base(gathered, mutable_input)->wait();
  EXPECT_TRUE(gathered.equal(input));
  auto scattered = at::zeros({1000}, input.options());
  backend->_reduce_scatter_base(scattered, gathered)->wait();
  EXPECT_TRUE(scattered.equal(input));
  std::vector<at::Tensor> tensors = {scattered};
  backend->allreduce(tensors)->wait();
  EXPECT_TRUE(scattered.equal(input));
}

}  // namespace
}  // namespace titan
