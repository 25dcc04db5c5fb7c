// The state of torch's random number generators, to run something twice with the same numbers.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace titan::nn {

// State of the CPU generator, and of the generator of every device that one of `tensors` is on.
class RandomState {
 public:
  RandomState() = default;  // holds no generator's state
  static RandomState of(const std::vector<at::Tensor>& tensors);

  // Makes this state current. Returns the one that it replaced.
  RandomState exchange() const;

 private:
  static at::Tensor read(at::Device device);
  std::vector<std::pair<at::Device, at::Tensor>> states_;
};

// Makes `state` current for as long as it lives; then the generators continue where they were.
class RandomStateGuard {
 public:
  explicit RandomStateGuard(const RandomState& state) : before_(state.exchange()) {}
  ~RandomStateGuard() { before_.exchange(); }
  RandomStateGuard(const RandomStateGuard&) = delete;
  RandomStateGuard& operator=(const RandomStateGuard&) = delete;

 private:
  RandomState before_;
};

}  // namespace titan::nn
