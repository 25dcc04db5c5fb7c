// This program's operators in torch's dispatcher (library "titan"). They are below autograd: nn/ops and parallel have
// their gradients. Each type of device registers kernels for the operators that it has: the CPU and the meta device in
// cpu/attention/attention_operators.cpp and cpu/rows/row_operators.cpp, an accelerator in device/device_operators.cpp.
// A new operator is a row here and in operators.cpp, and a function for each device that has it.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <tuple>
#include <utility>

namespace torch {
class Library;
}

namespace titan::kernels {

// Puts this program's kernels for a type of device into the dispatcher, or takes them out: the keys cpu.kernels and
// cuda.kernels. Those of the CPU, and of the meta device, which stands for it, are in use from the start. Process-wide;
// call it before the first forward, since a backward needs the kernels of its forward. Has no effect for a device
// without kernels.
void use_fused_kernels(c10::DeviceType type, bool in_use);
bool uses_fused_kernels(c10::DeviceType type);

// Says how to register an accelerator's kernels. Call it when the accelerator's module is loaded.
using RegisterKernels = std::function<void(torch::Library& library)>;
void provide_kernels(c10::DeviceType type, RegisterKernels register_kernels);

template <typename Signature>
class Operator;

// Calls the kernel of the arguments' device. Returns undefined tensors, or false, if the device has no kernel in use or
// its kernel does not take these arguments; callers then use ATen's operators. Operators of gradients take what their
// forward operator has taken, and do not check it again.
template <typename Result, typename... Args>
class Operator<Result(Args...)> {
 public:
  explicit Operator(const char* schema);  // "swiglu(Tensor gate, Tensor up) -> Tensor"

  Result operator()(Args... args) const {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return handle_.call(std::forward<Args>(args)...);
  }

 private:
  c10::TypedOperatorHandle<Result(Args...)> handle_;
};

}  // namespace titan::kernels

// Shapes, dtypes and rounding are those of the kernels in cpu/rows/ (fused_kernels.h, cross_entropy_kernel.h,
// linear_kernel.h and adamw_kernel.h) and cpu/attention/attention_kernel.h.
namespace titan::ops {

using kernels::Operator;
using Tensors2 = std::tuple<at::Tensor, at::Tensor>;
using Tensors3 = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// Returns {out, rrms} for x [..., D] and weight [D].
extern const Operator<Tensors2(const at::Tensor& x, const at::Tensor& weight, double eps)> rms_norm;
// Returns {sum, out, rrms}: x + delta, and rms_norm() of it.
extern const Operator<Tensors3(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps)>
    add_rms_norm;
// Returns the gradients of x and weight. `more` is another gradient of x, which is added.
extern const Operator<Tensors2(const at::Tensor& out_grad, const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& rrms, const std::optional<at::Tensor>& more)>
    rms_norm_backward;

// Returns x [B, T, H, E], whose pairs of neighbors are multiplied by complex64 factors [>= T, E / 2] or, for the
// gradient, by their conjugates.
extern const Operator<at::Tensor(const at::Tensor& x, const at::Tensor& factors, bool conjugate)> rotate;
// The same for pairs of element i of a head and element i + E / 2.
extern const Operator<at::Tensor(const at::Tensor& x, const at::Tensor& factors, bool conjugate)> rotate_halves;

extern const Operator<at::Tensor(const at::Tensor& gate, const at::Tensor& up)> swiglu;
// Returns the gradients of gate and up.
extern const Operator<Tensors2(const at::Tensor& out_grad, const at::Tensor& gate, const at::Tensor& up)>
    swiglu_backward;

// Returns x W^T [..., outputs] for x [..., depth] of few rows and weight [outputs, depth]. Has no gradient.
extern const Operator<at::Tensor(const at::Tensor& x, const at::Tensor& weight)> linear_of_few_rows;

// Returns {out, sums} of attention scaled by 1 / sqrt(E), in which query i sees the first min(S, i + 1 + offset) keys:
// q [B, H, N, E], k and v [B, K, S, E] -> [B, H, N, E] and float32 [B, H, N].
extern const Operator<Tensors2(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::int64_t offset)>
    attend_part;
// Returns the gradients of q, k and v. `out` and `sums` may be of more keys than these.
extern const Operator<Tensors3(const at::Tensor& out_grad, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const at::Tensor& out, const at::Tensor& sums, std::int64_t offset)>
    attend_part_backward;

// Returns {the summed loss, stats for the gradient} of contiguous logits [..., V] and labels [...].
extern const Operator<Tensors2(const at::Tensor& logits, const at::Tensor& labels, std::int64_t ignored)> cross_entropy;
// Returns the stats of logits that cover a part of the vocabulary.
extern const Operator<at::Tensor(const at::Tensor& logits, const at::Tensor& labels)> softmax_stats;
// Writes the gradient of the logits to `grad`, which is like the logits and may be the logits.
extern const Operator<bool(const at::Tensor& loss_grad, const at::Tensor& logits, const at::Tensor& labels,
                           const at::Tensor& stats, const at::Tensor& grad)>
    cross_entropy_backward;

// Updates a parameter and its moments in place, for step number `step` (from 1), with the gradient times `grad_factor`.
// `sums`, if given, is int64 [2, 3] on the host, and gets the sums of the bits that the update read, and of those that
// it wrote: of the parameter, exp_avg and exp_avg_sq.
extern const Operator<bool(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg,
                           const at::Tensor& exp_avg_sq, double lr, double beta1, double beta2, double eps,
                           double weight_decay, double step, double grad_factor, const std::optional<at::Tensor>& sums)>
    adamw;
// Returns the sum of the bits of one of these tensors as it is now, as adamw() would read it. The caller has got sums
// of it from adamw().
extern const Operator<std::int64_t(const at::Tensor& tensor)> adamw_sum;

}  // namespace titan::ops
