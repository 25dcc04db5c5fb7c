// The fused operators of an accelerator: check inputs, allocate outputs and call the functions that compute. These come
// from the accelerator's module (launches of kernels/cuda/launch_fused_rows.cu) or the host (host_launches(), the same
// arithmetic).
#pragma once

#include <functional>

#include "kernels/fused.h"
#include "kernels/portable/fused_lanes.h"

namespace titan::device {

// The functions of fused_lanes.h applied to all rows, packs or elements. Pointers are device memory.
template <typename T>
struct LaunchesFor {
  std::function<void(std::int64_t rows, std::int64_t dim, float eps, const T* x, const T* delta, const T* weight,
                     T* sum, T* out, float* rrms)>
      rms_norm;
  // Row i belongs to team i % teams; `columns` [teams, dim] is the teams' workspace.
  std::function<void(std::int64_t rows, std::int64_t dim, std::int64_t teams, const T* out_grad, const T* more,
                     const T* x, const T* weight, const float* rrms, T* x_grad, T* weight_grad, float* columns)>
      rms_norm_backward;
  std::function<void(const Rotation& shape, const T* x, const float* factors, bool conjugate, T* out)> rotate;
  std::function<void(std::int64_t count, const T* gate, const T* up, T* out)> swiglu;
  std::function<void(std::int64_t count, const T* out_grad, const T* gate, const T* up, T* gate_grad, T* up_grad)>
      swiglu_backward;
};

struct Launches {
  LaunchesFor<float> of_float;
  LaunchesFor<BFloat16Bits> of_bfloat16;
};

// Returns functions that compute on the host, synchronously, in host memory.
Launches host_launches();

class DeviceFusedOps : public kernels::FusedOps {
 public:
  DeviceFusedOps(c10::DeviceType type, Launches launches) : type_(type), launches_(std::move(launches)) {}

  bool takes_rms_norm(const at::Tensor& x, const at::Tensor& weight) const override;
  bool takes_add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight) const override;
  bool takes_rotation(const at::Tensor& x, const at::Tensor& factors) const override;
  bool takes_swiglu(const at::Tensor& gate, const at::Tensor& up) const override;

  std::tuple<at::Tensor, at::Tensor> rms_norm_forward(const at::Tensor& x, const at::Tensor& weight,
                                                      double eps) const override;
  std::tuple<at::Tensor, at::Tensor, at::Tensor> add_rms_norm_forward(const at::Tensor& x, const at::Tensor& delta,
                                                                      const at::Tensor& weight,
                                                                      double eps) const override;
  std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& out_grad, const at::Tensor& x,
                                                       const at::Tensor& weight, const at::Tensor& rrms,
                                                       const at::Tensor& more) const override;
  at::Tensor rotate(const at::Tensor& x, const at::Tensor& factors, bool conjugate) const override;
  at::Tensor swiglu_forward(const at::Tensor& gate, const at::Tensor& up) const override;
  std::tuple<at::Tensor, at::Tensor> swiglu_backward(const at::Tensor& out_grad, const at::Tensor& gate,
                                                     const at::Tensor& up) const override;

 private:
  bool takes(const at::Tensor& tensor) const;

  c10::DeviceType type_;
  Launches launches_;
};

}  // namespace titan::device
