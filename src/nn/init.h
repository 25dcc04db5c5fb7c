// Weights from one seed, the same at every world size and mesh. An initializer fills the box that a rank holds of a
// parameter with the values that the whole parameter would have there.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <string>

#include "nn/module.h"

namespace titan::nn {

class Initializer {
 public:
  virtual ~Initializer() = default;
  void ones(const NamedParameter& parameter);
  virtual void normal(const NamedParameter& parameter, double mean, double std) = 0;
  // Normal with values beyond [a, b] (absolute bounds) cut off by inverse transform sampling
  // (torch.nn.init.trunc_normal_).
  virtual void trunc_normal(const NamedParameter& parameter, double mean, double std, double a, double b) = 0;
};

// CPU: PyTorch's own stream. torch.manual_seed(seed) and the same calls in the same order on whole tensors give the
// same bits. Every rank draws the whole stream, a small block at a time, and keeps its part, so no rank holds a whole
// parameter.
class SequentialInitializer : public Initializer {
 public:
  explicit SequentialInitializer(std::uint64_t seed);
  void normal(const NamedParameter& parameter, double mean, double std) override;
  void trunc_normal(const NamedParameter& parameter, double mean, double std, double a, double b) override;

 private:
  at::Generator generator_;
};

// Devices: a counter-based generator keyed by seed, parameter name and element, so a rank draws its own part only.
class CounterInitializer : public Initializer {
 public:
  explicit CounterInitializer(std::uint64_t seed) : seed_(seed) {}
  void normal(const NamedParameter& parameter, double mean, double std) override;
  void trunc_normal(const NamedParameter& parameter, double mean, double std, double a, double b) override;

 private:
  std::uint64_t seed_;
};

// Draws nothing: init_weights() then only computes the model's tables, for weights that come from elsewhere.
class BuffersOnly final : public Initializer {
 public:
  void normal(const NamedParameter&, double, double) override {}
  void trunc_normal(const NamedParameter&, double, double, double, double) override {}
};

}  // namespace titan::nn
