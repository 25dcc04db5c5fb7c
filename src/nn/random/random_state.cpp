#include "nn/random/random_state.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <mutex>

namespace titan::nn {

at::Tensor RandomState::read(at::Device device) {
  auto generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

RandomState RandomState::of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Device> devices = {at::kCPU};
  for (const auto& tensor : tensors) {
    if (!tensor.defined() || tensor.is_meta()) continue;
    if (std::find(devices.begin(), devices.end(), tensor.device()) == devices.end()) devices.push_back(tensor.device());
  }
  RandomState state;
  for (const auto device : devices) state.states_.emplace_back(device, read(device));
  return state;
}

RandomState RandomState::exchange() const {
  RandomState before;
  for (const auto& [device, state] : states_) {
    before.states_.emplace_back(device, read(device));
    auto generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(state);
  }
  return before;
}

}  // namespace titan::nn
