// The operators of a GPU on the simulated device: computed on the host, and queued as the GPU's kernels.
#include <torch/library.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/device/device_operators.h"
#include "tests/support/simulated_device/parts.h"

namespace titan::sim {
namespace {

using device::DeviceOperators;

void add(std::vector<at::Tensor>& tensors, const at::Tensor& tensor) {
  if (tensor.defined()) tensors.push_back(tensor);
}
void add(std::vector<at::Tensor>& tensors, const std::optional<at::Tensor>& tensor) {
  if (tensor) add(tensors, *tensor);
}
template <typename... Tensors>
void add(std::vector<at::Tensor>& tensors, const std::tuple<Tensors...>& each) {
  std::apply([&](const auto&... one) { (add(tensors, one), ...); }, each);
}
void add(std::vector<at::Tensor>& /*tensors*/, double /*number*/) {}

void queue(const std::string& name, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs) {
  std::vector<Use> uses;
  for (const auto& input : inputs) uses.push_back({bytes_of(input), false, "an input"});
  for (const auto& output : outputs) uses.push_back({bytes_of(output), true, "an output"});
  State::get().queue(current_stream(), "titan::" + name, uses);
}

// Returns the operator `name`, which also queues a kernel for each call that it takes.
template <typename Result, typename... Args>
auto queued(const std::string& name, Result (DeviceOperators::*method)(Args...) const) {
  return [name, method](Args... args) -> Result {
    static const DeviceOperators operators(c10::DeviceType::PrivateUse1, device::host_launches());
    const Result result = (operators.*method)(args...);
    std::vector<at::Tensor> inputs, outputs;
    (add(inputs, args), ...);
    add(outputs, result);
    if (outputs.empty()) return result;
    if (name != "rms_norm_backward") {
      queue(name, inputs, outputs);
    } else {  // two kernels: the second sums the weight's gradient
      queue(name, inputs, {outputs[0]});
      queue("sum_teams", {}, {outputs[1]});
    }
    return result;
  };
}

}  // namespace

void install_fused_ops() {
  kernels::provide_kernels(c10::DeviceType::PrivateUse1, [](torch::Library& library) {
    DeviceOperators::for_each([&](const char* name, const auto& method) { library.impl(name, queued(name, method)); });
  });
}

}  // namespace titan::sim
