// Interface of the fused operators of one kind of device: RMSNorm (also of a sum), rotary embedding and SwiGLU, in
// float32 or bfloat16. kernels/cpu/rows/fused_kernels.h says what each computes and takes.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace titan::kernels {

class FusedOps {
 public:
  virtual ~FusedOps() = default;

  virtual bool takes_rms_norm(const at::Tensor& x, const at::Tensor& weight) const = 0;
  virtual bool takes_add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight) const = 0;
  virtual bool takes_rotation(const at::Tensor& x, const at::Tensor& factors) const = 0;
  virtual bool takes_swiglu(const at::Tensor& gate, const at::Tensor& up) const = 0;

  // Return {out, rrms}, {sum, out, rrms} and {x's gradient, weight's gradient}.
  virtual std::tuple<at::Tensor, at::Tensor> rms_norm_forward(const at::Tensor& x, const at::Tensor& weight,
                                                              double eps) const = 0;
  virtual std::tuple<at::Tensor, at::Tensor, at::Tensor> add_rms_norm_forward(const at::Tensor& x,
                                                                              const at::Tensor& delta,
                                                                              const at::Tensor& weight,
                                                                              double eps) const = 0;
  virtual std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& out_grad, const at::Tensor& x,
                                                               const at::Tensor& weight, const at::Tensor& rrms,
                                                               const at::Tensor& more) const = 0;
  virtual at::Tensor rotate(const at::Tensor& x, const at::Tensor& factors, bool conjugate) const = 0;
  virtual at::Tensor swiglu_forward(const at::Tensor& gate, const at::Tensor& up) const = 0;
  virtual std::tuple<at::Tensor, at::Tensor> swiglu_backward(const at::Tensor& out_grad, const at::Tensor& gate,
                                                             const at::Tensor& up) const = 0;
};

// Returns the CPU implementation, which also handles meta tensors.
const FusedOps& cpu_fused_ops();

// Registers an accelerator's operators, which must live as long as the process. Call once, when its module is loaded.
void register_fused_ops(const FusedOps& of_accelerator);

// Returns the fused operators for `tensor`'s device, or null to use ATen's (kernels/choice.h).
const FusedOps* fused_ops_for(const at::Tensor& tensor);

}  // namespace titan::kernels
