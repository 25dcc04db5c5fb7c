// The fused operators of a GPU on the simulated device: computed on the host, and queued as the GPU's kernels.
#include <string>
#include <utility>
#include <vector>

#include "kernels/device/device_fused_ops.h"
#include "tests/support/simulated_device/parts.h"

namespace titan::sim {
namespace {

class SimulatedFusedOps final : public device::DeviceFusedOps {
 public:
  SimulatedFusedOps() : DeviceFusedOps(c10::DeviceType::PrivateUse1, device::host_launches()) {}

  std::tuple<at::Tensor, at::Tensor> rms_norm_forward(const at::Tensor& x, const at::Tensor& weight,
                                                      double eps) const override {
    auto found = DeviceFusedOps::rms_norm_forward(x, weight, eps);
    queue("rms_norm", {x, weight}, {std::get<0>(found), std::get<1>(found)});
    return found;
  }
  std::tuple<at::Tensor, at::Tensor, at::Tensor> add_rms_norm_forward(const at::Tensor& x, const at::Tensor& delta,
                                                                      const at::Tensor& weight,
                                                                      double eps) const override {
    auto found = DeviceFusedOps::add_rms_norm_forward(x, delta, weight, eps);
    queue("add_rms_norm", {x, delta, weight}, {std::get<0>(found), std::get<1>(found), std::get<2>(found)});
    return found;
  }
  std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& out_grad, const at::Tensor& x,
                                                       const at::Tensor& weight, const at::Tensor& rrms,
                                                       const at::Tensor& more) const override {
    auto found = DeviceFusedOps::rms_norm_backward(out_grad, x, weight, rrms, more);
    queue("rms_norm_backward", {out_grad, x, weight, rrms, more}, {std::get<0>(found)});
    queue("sum_teams", {}, {std::get<1>(found)});
    return found;
  }
  at::Tensor rotate(const at::Tensor& x, const at::Tensor& factors, bool conjugate) const override {
    auto out = DeviceFusedOps::rotate(x, factors, conjugate);
    queue("rotate", {x, factors}, {out});
    return out;
  }
  at::Tensor swiglu_forward(const at::Tensor& gate, const at::Tensor& up) const override {
    auto out = DeviceFusedOps::swiglu_forward(gate, up);
    queue("swiglu", {gate, up}, {out});
    return out;
  }
  std::tuple<at::Tensor, at::Tensor> swiglu_backward(const at::Tensor& out_grad, const at::Tensor& gate,
                                                     const at::Tensor& up) const override {
    auto found = DeviceFusedOps::swiglu_backward(out_grad, gate, up);
    queue("swiglu_backward", {out_grad, gate, up}, {std::get<0>(found), std::get<1>(found)});
    return found;
  }

 private:
  static void queue(const std::string& name, const std::vector<at::Tensor>& inputs,
                    const std::vector<at::Tensor>& outputs) {
    std::vector<Use> uses;
    for (const auto& input : inputs)
      if (input.defined()) uses.push_back({bytes_of(input), false, "an input"});
    for (const auto& output : outputs) uses.push_back({bytes_of(output), true, "an output"});
    State::get().queue(current_stream(), "titan::" + name, uses);
  }
};

}  // namespace

void install_fused_ops() {
  static const SimulatedFusedOps ops;
  kernels::register_fused_ops(ops);
}

}  // namespace titan::sim
