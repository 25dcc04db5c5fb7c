#include "kernels/cpu/attention/attention_kernel.h"

#include <ATen/ATen.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_native.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_native.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/matmul/matmul_kernel.h"
#include "kernels/cpu/parallel.h"

namespace titan::kernels {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

// Returns an empty [B, H, T, E] whose transpose [B, T, H, E] is contiguous, as the following modules need it.
at::Tensor empty_heads(const at::Tensor& like) {
  return at::empty({like.size(0), like.size(2), like.size(1), like.size(3)}, like.options()).transpose(1, 2);
}

// Returns the rows of one head of a tensor [B, H, T, E] or [B, H, T].
template <typename T>
Rows<T> rows_of(const at::Tensor& tensor, std::int64_t batch, std::int64_t head) {
  auto* data = static_cast<std::remove_const_t<T>*>(tensor.data_ptr());
  return {data + batch * tensor.stride(0) + head * tensor.stride(1), tensor.stride(2)};
}

at::Tensor with_neighbours(const at::Tensor& tensor) { return tensor.stride(-1) == 1 ? tensor : tensor.contiguous(); }

std::unique_ptr<float[]> make_workspace(std::int64_t floats) {
  return std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(floats));
}

struct Problem {
  at::Tensor q, k, v, out, sums;
  HeadsShape shape;

  std::int64_t num_groups() const { return q.size(0) * k.size(1); }
  std::int64_t heads_per_group() const { return q.size(1) / k.size(1); }

  template <typename T>
  HeadTensors<T> heads(std::int64_t group, std::int64_t i) const {
    const std::int64_t batch = group / k.size(1), kv_head = group % k.size(1);
    const std::int64_t head = kv_head * heads_per_group() + i;
    return {rows_of<const T>(q, batch, head), rows_of<const T>(k, batch, kv_head), rows_of<const T>(v, batch, kv_head),
            rows_of<T>(out, batch, head), rows_of<float>(sums, batch, head)};
  }
};

template <typename T, typename Kernel>
void run_forward(const AttentionKernels& kernels, Kernel kernel, const Problem& problem) {
  parallel_for(0, problem.num_groups(), 1, [&](std::int64_t begin, std::int64_t end) {
    const auto workspace = make_workspace(kernels.workspace(problem.shape));
    std::vector<HeadTensors<T>> heads(static_cast<std::size_t>(problem.heads_per_group()));
    for (std::int64_t group = begin; group < end; ++group) {
      for (std::size_t i = 0; i < heads.size(); ++i) heads[i] = problem.heads<T>(group, static_cast<std::int64_t>(i));
      kernel(problem.shape, heads.data(), problem.heads_per_group(), workspace.get());
    }
  });
}

struct Gradients {
  at::Tensor out, q, k, v;
};

template <typename T, typename Kernel>
void run_backward(const AttentionKernels& kernels, Kernel kernel, const Problem& problem, const Gradients& grads) {
  parallel_for(0, problem.num_groups(), 1, [&](std::int64_t begin, std::int64_t end) {
    const auto workspace = make_workspace(kernels.workspace(problem.shape));
    const auto count = static_cast<std::size_t>(problem.heads_per_group());
    std::vector<HeadTensors<T>> heads(count);
    std::vector<HeadGradients<T>> head_grads(count);
    for (std::int64_t group = begin; group < end; ++group) {
      const std::int64_t batch = group / problem.k.size(1), kv_head = group % problem.k.size(1);
      for (std::size_t i = 0; i < count; ++i) {
        const std::int64_t head = kv_head * problem.heads_per_group() + static_cast<std::int64_t>(i);
        heads[i] = problem.heads<T>(group, static_cast<std::int64_t>(i));
        head_grads[i] = {rows_of<const T>(grads.out, batch, head), rows_of<T>(grads.q, batch, head)};
      }
      kernel(problem.shape, heads.data(), head_grads.data(), problem.heads_per_group(),
             rows_of<T>(grads.k, batch, kv_head), rows_of<T>(grads.v, batch, kv_head), workspace.get());
    }
  });
}

// True if these are tensors [B, heads, tokens, E] that the kernels read, with the same B and E.
bool are_heads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::int64_t head_dim_unit) {
  const auto type = q.scalar_type();
  const auto fits = [&](const at::Tensor& tensor) {
    return tensor.device() == q.device() && tensor.dim() == 4 && tensor.scalar_type() == type &&
           tensor.stride(-1) == 1 && tensor.size(0) == q.size(0) && tensor.size(3) == q.size(3);
  };
  return (q.is_cpu() || q.is_meta()) && (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf) && fits(q) &&
         fits(k) && fits(v) && q.numel() > 0 && q.size(3) % head_dim_unit == 0;
}

HeadsShape shape_of(const at::Tensor& q, const at::Tensor& k, double scale, std::int64_t offset) {
  TITAN_CHECK(offset >= 0, "attention's first query would see no key: offset " + std::to_string(offset));
  return {q.size(2), k.size(2), std::min(offset, k.size(2)), q.size(3), static_cast<float>(scale)};
}

// True if there is no mask and no dropout.
bool is_plain(double dropout, const OptionalTensor& mask) { return dropout == 0 && (!mask || !mask->defined()); }

bool is_ours(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double dropout, bool causal,
             const OptionalTensor& mask) {
  return causal && is_plain(dropout, mask) && takes(best_attention(), q, k, v) && q.size(2) == k.size(2);
}

bool is_cached(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double dropout, bool causal,
               const OptionalTensor& mask) {
  return !causal && is_plain(dropout, mask) && q.dim() == 4 && q.size(2) <= kFewQueries &&
         takes(TITAN_BEST_KERNELS(kCachedAttention), q, k, v);
}

double scale_of(const at::Tensor& q, std::optional<double> scale) {
  return scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(-1))));
}

// True if ATen's kernel would multiply in a 16-bit type for which this process has no fast instructions.
bool is_slow_in_aten(const at::Tensor& q) {
  return (q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf) && !has_products(q.scalar_type());
}

// Converts a floating-point mask, which is added to the scores, to float32. A boolean mask is not changed.
OptionalTensor in_float32(const OptionalTensor& mask) {
  return mask && mask->defined() && mask->is_floating_point() ? mask->to(at::kFloat) : mask;
}

// Falls back to ATen's kernel: on float32 copies, rounded once, if ATen is slow in the operands' dtype.
std::tuple<at::Tensor, at::Tensor> dispatched_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                      double dropout, bool causal, const OptionalTensor& mask,
                                                      std::optional<double> scale) {
  if (is_ours(q, k, v, dropout, causal, mask)) return attention_forward(best_attention(), q, k, v, scale_of(q, scale));
  if (is_cached(q, k, v, dropout, causal, mask))
    return cached_attention(TITAN_BEST_KERNELS(kCachedAttention), q, k, v, scale_of(q, scale));
  if (!is_slow_in_aten(q))
    return at::native::_scaled_dot_product_flash_attention_cpu(q, k, v, dropout, causal, mask, scale);
  const auto [out, sums] = at::native::_scaled_dot_product_flash_attention_cpu(
      q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat), dropout, causal, in_float32(mask), scale);
  return {out.to(q.scalar_type()), sums};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> dispatched_backward(
    const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& out,
    const at::Tensor& sums, double dropout, bool causal, const OptionalTensor& mask, std::optional<double> scale) {
  if (is_ours(q, k, v, dropout, causal, mask))
    return attention_backward(best_attention(), grad, q, k, v, out, sums, scale_of(q, scale));
  if (!is_slow_in_aten(q))
    return at::native::_scaled_dot_product_flash_attention_cpu_backward(grad, q, k, v, out, sums, dropout, causal, mask,
                                                                        scale);
  const auto [q_grad, k_grad, v_grad] = at::native::_scaled_dot_product_flash_attention_cpu_backward(
      grad.to(at::kFloat), q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat), out.to(at::kFloat), sums, dropout,
      causal, in_float32(mask), scale);
  return {q_grad.to(q.scalar_type()), k_grad.to(k.scalar_type()), v_grad.to(v.scalar_type())};
}

}  // namespace

const AttentionKernels& best_attention() {
#if defined(__x86_64__)
  if (has_bfloat16_tiles()) return amx::kAttention;
  if (has_bfloat16_products()) return avx512bf16::kAttention;
#endif
  return TITAN_BEST_KERNELS(kAttention);
}

bool takes(const AttentionKernels& kernels, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return are_heads(q, k, v, kernels.head_dim_unit) && k.numel() > 0 && k.size(2) == v.size(2) &&
         k.size(1) == v.size(1) && q.size(1) % k.size(1) == 0;
}

bool takes(const CachedAttentionKernels& kernels, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return are_heads(q, k, v, kernels.head_dim_unit) && k.size(1) == q.size(1) && v.size(1) == q.size(1) &&
         k.numel() > 0 && k.size(2) == v.size(2);
}

std::tuple<at::Tensor, at::Tensor> cached_attention(const CachedAttentionKernels& kernels, const at::Tensor& q,
                                                    const at::Tensor& k, const at::Tensor& v, double scale) {
  const at::Tensor out = empty_heads(q), sums = at::empty(q.sizes().slice(0, 3), q.options().dtype(at::kFloat));
  const CachedShape shape{q.size(2), k.size(2), q.size(3), static_cast<float>(scale)};
  const auto run = [&]<typename T>(void (*attend)(const CachedShape&, const HeadTensors<T>&, float*)) {
    parallel_for(0, q.size(0) * q.size(1), 1, [&](std::int64_t begin, std::int64_t end) {
      const auto workspace = make_workspace(kernels.workspace(shape));
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t batch = i / q.size(1), head = i % q.size(1);
        attend(shape,
               {rows_of<const T>(q, batch, head), rows_of<const T>(k, batch, head), rows_of<const T>(v, batch, head),
                rows_of<T>(out, batch, head), rows_of<float>(sums, batch, head)},
               workspace.get());
      }
    });
  };
  if (q.scalar_type() == at::kFloat) run(kernels.attend_float);
  if (q.scalar_type() == at::kBFloat16) run(kernels.attend_bfloat16);
  if (q.scalar_type() == at::kHalf) run(kernels.attend_float16);
  return {out, sums};
}

std::tuple<at::Tensor, at::Tensor> attention_forward(const AttentionKernels& kernels, const at::Tensor& q,
                                                     const at::Tensor& k, const at::Tensor& v, double scale,
                                                     std::int64_t offset) {
  const Problem problem{q,
                        k,
                        v,
                        empty_heads(q),
                        at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat)),
                        shape_of(q, k, scale, offset)};
  if (q.is_meta()) return {problem.out, problem.sums};
  if (q.scalar_type() == at::kFloat) {
    run_forward<float>(kernels, kernels.forward_float, problem);
  } else if (q.scalar_type() == at::kHalf) {
    run_forward<Float16Bits>(kernels, kernels.forward_float16, problem);
  } else {
    run_forward<BFloat16Bits>(kernels, kernels.forward_bfloat16, problem);
  }
  return {problem.out, problem.sums};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_backward(const AttentionKernels& kernels,
                                                                  const at::Tensor& out_grad, const at::Tensor& q,
                                                                  const at::Tensor& k, const at::Tensor& v,
                                                                  const at::Tensor& out, const at::Tensor& sums,
                                                                  double scale, std::int64_t offset) {
  const Problem problem{q, k, v, with_neighbours(out), sums, shape_of(q, k, scale, offset)};
  const Gradients grads{with_neighbours(out_grad), empty_heads(q), empty_heads(k), empty_heads(v)};
  if (q.is_meta()) return {grads.q, grads.k, grads.v};
  if (q.scalar_type() == at::kFloat) {
    run_backward<float>(kernels, kernels.backward_float, problem, grads);
  } else if (q.scalar_type() == at::kHalf) {
    run_backward<Float16Bits>(kernels, kernels.backward_float16, problem, grads);
  } else {
    run_backward<BFloat16Bits>(kernels, kernels.backward_bfloat16, problem, grads);
  }
  return {grads.q, grads.k, grads.v};
}

void install_attention() {
  // Never unregistered: tensors may outlive any scope. "used" keeps the pointer, or leak checkers would report it.
  [[gnu::used]] static const auto* const library = [] {
    auto* made = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    made->impl("_scaled_dot_product_flash_attention_for_cpu", dispatched_forward);
    made->impl("_scaled_dot_product_flash_attention_for_cpu_backward", dispatched_backward);
    return made;
  }();
}

}  // namespace titan::kernels
