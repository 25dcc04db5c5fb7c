#include "kernels/cpu/rows/fused_kernels.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"

namespace titan::kernels {
namespace {

constexpr std::int64_t kGrain = 32768;  // minimum elements per thread

std::int64_t grain_of(std::int64_t elements_each) {
  return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, elements_each));
}

// Calls body(kernels of the tensor's dtype, an element of it).
template <typename Body>
void with_dtype(const FusedKernels& kernels, const at::Tensor& tensor, const Body& body) {
  if (tensor.scalar_type() == at::kFloat) {
    body(kernels.of_float, float{});
  } else {
    body(kernels.of_bfloat16, BFloat16Bits{});
  }
}

template <typename T>
const T* input(const at::Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}
template <typename T>
T* output(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

bool has_fit_dtype(const at::Tensor& tensor) {
  return (tensor.is_cpu() || tensor.is_meta()) &&
         (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16);
}

bool are_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.device() == b.device();
}

at::Tensor contiguous_like(const at::Tensor& tensor) {
  return at::empty_like(tensor, tensor.options(), at::MemoryFormat::Contiguous);
}

RowsShape rows_shape(const at::Tensor& x) { return {x.numel() / x.size(-1), x.size(-1)}; }

}  // namespace

const FusedKernels& best_fused_kernels() { return TITAN_BEST_KERNELS(kFused); }

bool takes_rms_norm(const at::Tensor& x, const at::Tensor& weight) {
  return has_fit_dtype(x) && are_alike(x, weight) && x.dim() > 0 && x.numel() > 0 && weight.dim() == 1 &&
         weight.size(0) == x.size(-1) && x.is_contiguous() && weight.is_contiguous();
}

bool takes_add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight) {
  return takes_rms_norm(x, weight) && are_alike(x, delta) && x.sizes() == delta.sizes() && delta.is_contiguous();
}

bool takes_rotation(const at::Tensor& x, const at::Tensor& factors) {
  return has_fit_dtype(x) && x.dim() == 4 && x.numel() > 0 && x.size(3) % 2 == 0 && factors.device() == x.device() &&
         factors.scalar_type() == at::kComplexFloat && factors.dim() == 2 && factors.is_contiguous() &&
         !factors.is_conj() && factors.size(0) >= x.size(1) && factors.size(1) == x.size(3) / 2;
}

bool takes_swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return has_fit_dtype(gate) && are_alike(gate, up) && gate.sizes() == up.sizes() && gate.is_contiguous() &&
         up.is_contiguous();
}

std::tuple<at::Tensor, at::Tensor> rms_norm_forward(const FusedKernels& kernels, const at::Tensor& x,
                                                    const at::Tensor& weight, double eps) {
  const auto [rows, dim] = rows_shape(x);
  const auto out = contiguous_like(x), rrms = at::empty({rows}, x.options().dtype(at::kFloat));
  if (x.is_meta()) return {out, rrms};
  with_dtype(kernels, x, [&, rows = rows, dim = dim](const auto& rows_of, auto element) {
    using T = decltype(element);
    parallel_for(0, rows, grain_of(dim), [&](std::int64_t begin, std::int64_t end) {
      rows_of.rms_norm({end - begin, dim}, input<T>(x) + begin * dim, input<T>(weight), static_cast<float>(eps),
                       output<T>(out) + begin * dim, output<float>(rrms) + begin);
    });
  });
  return {out, rrms};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> add_rms_norm_forward(const FusedKernels& kernels, const at::Tensor& x,
                                                                    const at::Tensor& delta, const at::Tensor& weight,
                                                                    double eps) {
  const auto [rows, dim] = rows_shape(x);
  const auto sum = contiguous_like(x), out = contiguous_like(x);
  const auto rrms = at::empty({rows}, x.options().dtype(at::kFloat));
  if (x.is_meta()) return {sum, out, rrms};
  with_dtype(kernels, x, [&, rows = rows, dim = dim](const auto& rows_of, auto element) {
    using T = decltype(element);
    parallel_for(0, rows, grain_of(dim), [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t offset = begin * dim;
      rows_of.add_rms_norm({end - begin, dim}, input<T>(x) + offset, input<T>(delta) + offset, input<T>(weight),
                           static_cast<float>(eps), output<T>(sum) + offset, output<T>(out) + offset,
                           output<float>(rrms) + begin);
    });
  });
  return {sum, out, rrms};
}

std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const FusedKernels& kernels, const at::Tensor& out_grad,
                                                     const at::Tensor& x, const at::Tensor& weight,
                                                     const at::Tensor& rrms, const at::Tensor& more) {
  constexpr std::int64_t kBlock = 64;  // rows per partial sum of the weight's gradient
  const auto [rows, dim] = rows_shape(x);
  const std::int64_t blocks = (rows + kBlock - 1) / kBlock;
  const auto grad = out_grad.contiguous(), added = more.defined() ? more.contiguous() : at::Tensor();
  const auto x_grad = contiguous_like(x), weight_grad = contiguous_like(weight);
  const auto parts = at::empty({blocks, dim}, rrms.options());
  if (x.is_meta()) return {x_grad, weight_grad};
  with_dtype(kernels, x, [&, rows = rows, dim = dim](const auto& rows_of, auto element) {
    using T = decltype(element);
    parallel_for(0, blocks, grain_of(kBlock * dim), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) {
        const std::int64_t first = block * kBlock, offset = first * dim;
        rows_of.rms_norm_backward({std::min(kBlock, rows - first), dim}, input<T>(grad) + offset,
                                  added.defined() ? input<T>(added) + offset : nullptr, input<T>(x) + offset,
                                  input<T>(weight), input<float>(rrms) + first, output<T>(x_grad) + offset,
                                  output<float>(parts) + block * dim);
      }
    });
    rows_of.sum_rows({blocks, dim}, output<float>(parts), output<T>(weight_grad));
  });
  return {x_grad, weight_grad};
}

namespace {

// `kernel_of` returns the kernel for all heads of a token.
template <typename KernelOf>
at::Tensor rotate_tokens(const FusedKernels& kernels, const at::Tensor& any, const at::Tensor& factors, bool conjugate,
                         const KernelOf& kernel_of) {
  const auto x = any.stride(3) == 1 ? any : any.contiguous();
  const auto out = contiguous_like(x);
  if (x.is_meta()) return out;
  const std::int64_t length = x.size(1), token_size = x.size(2) * x.size(3);
  with_dtype(kernels, x, [&](const auto& rows_of, auto element) {
    using T = decltype(element);
    const auto rotate_token = kernel_of(rows_of);
    parallel_for(0, x.size(0) * length, grain_of(token_size), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t token = begin; token < end; ++token) {
        const std::int64_t row = token / length, position = token % length;
        rotate_token({x.size(2), x.size(3), x.stride(2)}, input<T>(x) + row * x.stride(0) + position * x.stride(1),
                     input<float>(factors) + position * x.size(3), conjugate, output<T>(out) + token * token_size);
      }
    });
  });
  return out;
}

}  // namespace

at::Tensor rotate(const FusedKernels& kernels, const at::Tensor& x, const at::Tensor& factors, bool conjugate) {
  return rotate_tokens(kernels, x, factors, conjugate, [](const auto& rows_of) { return rows_of.rotate; });
}

at::Tensor rotate_halves(const FusedKernels& kernels, const at::Tensor& x, const at::Tensor& factors, bool conjugate) {
  return rotate_tokens(kernels, x, factors, conjugate, [](const auto& rows_of) { return rows_of.rotate_halves; });
}

at::Tensor swiglu_forward(const FusedKernels& kernels, const at::Tensor& gate, const at::Tensor& up) {
  const auto out = contiguous_like(gate);
  if (gate.is_meta()) return out;
  with_dtype(kernels, gate, [&](const auto& rows_of, auto element) {
    using T = decltype(element);
    parallel_for(0, gate.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      rows_of.swiglu(end - begin, input<T>(gate) + begin, input<T>(up) + begin, output<T>(out) + begin);
    });
  });
  return out;
}

std::tuple<at::Tensor, at::Tensor> swiglu_backward(const FusedKernels& kernels, const at::Tensor& out_grad,
                                                   const at::Tensor& gate, const at::Tensor& up) {
  const auto grad = out_grad.contiguous();
  const auto gate_grad = contiguous_like(gate), up_grad = contiguous_like(up);
  if (gate.is_meta()) return {gate_grad, up_grad};
  with_dtype(kernels, gate, [&](const auto& rows_of, auto element) {
    using T = decltype(element);
    parallel_for(0, gate.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      rows_of.swiglu_backward(end - begin, input<T>(grad) + begin, input<T>(gate) + begin, input<T>(up) + begin,
                              output<T>(gate_grad) + begin, output<T>(up_grad) + begin);
    });
  });
  return {gate_grad, up_grad};
}

}  // namespace titan::kernels
