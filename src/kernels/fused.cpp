#include "kernels/fused.h"

#include "kernels/choice.h"
#include "kernels/cpu/rows/fused_kernels.h"

namespace titan::kernels {
namespace {

class CpuFusedOps final : public FusedOps {
 public:
  bool takes_rms_norm(const at::Tensor& x, const at::Tensor& weight) const override {
    return kernels::takes_rms_norm(x, weight);
  }
  bool takes_add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight) const override {
    return kernels::takes_add_rms_norm(x, delta, weight);
  }
  bool takes_rotation(const at::Tensor& x, const at::Tensor& factors) const override {
    return kernels::takes_rotation(x, factors);
  }
  bool takes_swiglu(const at::Tensor& gate, const at::Tensor& up) const override {
    return kernels::takes_swiglu(gate, up);
  }
  std::tuple<at::Tensor, at::Tensor> rms_norm_forward(const at::Tensor& x, const at::Tensor& weight,
                                                      double eps) const override {
    return kernels::rms_norm_forward(best_fused_kernels(), x, weight, eps);
  }
  std::tuple<at::Tensor, at::Tensor, at::Tensor> add_rms_norm_forward(const at::Tensor& x, const at::Tensor& delta,
                                                                      const at::Tensor& weight,
                                                                      double eps) const override {
    return kernels::add_rms_norm_forward(best_fused_kernels(), x, delta, weight, eps);
  }
  std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& out_grad, const at::Tensor& x,
                                                       const at::Tensor& weight, const at::Tensor& rrms,
                                                       const at::Tensor& more) const override {
    return kernels::rms_norm_backward(best_fused_kernels(), out_grad, x, weight, rrms, more);
  }
  at::Tensor rotate(const at::Tensor& x, const at::Tensor& factors, bool conjugate) const override {
    return kernels::rotate(best_fused_kernels(), x, factors, conjugate);
  }
  at::Tensor swiglu_forward(const at::Tensor& gate, const at::Tensor& up) const override {
    return kernels::swiglu_forward(best_fused_kernels(), gate, up);
  }
  std::tuple<at::Tensor, at::Tensor> swiglu_backward(const at::Tensor& out_grad, const at::Tensor& gate,
                                                     const at::Tensor& up) const override {
    return kernels::swiglu_backward(best_fused_kernels(), out_grad, gate, up);
  }
};

const FusedOps* g_of_accelerator = nullptr;

}  // namespace

const FusedOps& cpu_fused_ops() {
  static const CpuFusedOps ops;
  return ops;
}

void register_fused_ops(const FusedOps& of_accelerator) { g_of_accelerator = &of_accelerator; }

const FusedOps* fused_ops_for(const at::Tensor& tensor) {
  if (tensor.is_cpu() || tensor.is_meta()) return uses_own() ? &cpu_fused_ops() : nullptr;
  return uses_own_on_device() ? g_of_accelerator : nullptr;
}

}  // namespace titan::kernels
