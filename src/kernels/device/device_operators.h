// The operators of an accelerator: they check inputs, allocate outputs and call the functions that compute. These come
// from the accelerator's module (launches of kernels/cuda/launch_fused_rows.cu) or the host (host_launches(), the same
// arithmetic).
#pragma once

#include <functional>
#include <optional>
#include <tuple>
#include <utility>

#include "kernels/operators.h"
#include "kernels/portable/fused_lanes.h"

namespace titan::device {

using ops::Tensors2;
using ops::Tensors3;

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
  // A rotation has at most Divisor::kMost packs.
  std::function<void(const Rotation& shape, const T* x, const float* factors, bool conjugate, T* out)> rotate;
  std::function<void(const Rotation& shape, const T* x, const float* factors, bool conjugate, T* out)> rotate_halves;
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

class DeviceOperators {
 public:
  DeviceOperators(c10::DeviceType type, Launches launches) : type_(type), launches_(std::move(launches)) {}

  // Calls each("swiglu", &DeviceOperators::swiglu) for every operator.
  template <typename Each>
  static void for_each(const Each& each);

  // The operators of kernels/operators.h. They return undefined tensors for inputs that they do not take; gradients do
  // not check theirs again.
  Tensors2 rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) const;
  Tensors3 add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps) const;
  Tensors2 rms_norm_backward(const at::Tensor& out_grad, const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& rrms, const std::optional<at::Tensor>& more) const;
  at::Tensor rotate(const at::Tensor& x, const at::Tensor& factors, bool conjugate) const;
  at::Tensor rotate_halves(const at::Tensor& x, const at::Tensor& factors, bool conjugate) const;
  at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) const;
  Tensors2 swiglu_backward(const at::Tensor& out_grad, const at::Tensor& gate, const at::Tensor& up) const;

 private:
  bool takes(const at::Tensor& tensor) const;
  bool takes_rotation(const at::Tensor& x, const at::Tensor& factors, std::int64_t packs) const;
  template <typename LaunchOf>
  at::Tensor rotate_by(const at::Tensor& x, const at::Tensor& factors, bool conjugate, const LaunchOf& launch_of) const;
  bool takes_rms_norm(const at::Tensor& x, const at::Tensor& weight) const;

  c10::DeviceType type_;
  Launches launches_;
};

template <typename Each>
void DeviceOperators::for_each(const Each& each) {
  each("rms_norm", &DeviceOperators::rms_norm);
  each("add_rms_norm", &DeviceOperators::add_rms_norm);
  each("rms_norm_backward", &DeviceOperators::rms_norm_backward);
  each("rotate", &DeviceOperators::rotate);
  each("rotate_halves", &DeviceOperators::rotate_halves);
  each("swiglu", &DeviceOperators::swiglu);
  each("swiglu_backward", &DeviceOperators::swiglu_backward);
}

// Registers `operators`, which must live as long as the process, in `library`.
void register_operators(torch::Library& library, const DeviceOperators& operators);

}  // namespace titan::device
