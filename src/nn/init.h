// Initializes weights from one seed, the same at every world size and mesh. An initializer fills a rank's box of a
// parameter with the values that the full parameter has there.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <string>
#include <vector>

#include "nn/module.h"

namespace titan::nn {

// A parameter to initialize. One that this rank does not have, as another stage of a pipeline has it, only advances the
// random numbers, so that the others are the same.
struct InitTarget {
  InitTarget(const NamedParameter& parameter)  // NOLINT(google-explicit-constructor): a parameter is a target
      : fqn(parameter.fqn), spec(parameter.spec()), local(parameter.tensor()) {}
  InitTarget(std::string absent, std::vector<std::int64_t> shape);

  std::string fqn;
  dist::ShardSpec spec;  // the box of `local`; an empty box if the rank does not have the parameter
  at::Tensor local;      // undefined if the rank does not have it
};

class Initializer {
 public:
  virtual ~Initializer() = default;
  void ones(const InitTarget& target);
  void zeros(const InitTarget& target);
  virtual void normal(const InitTarget& target, double mean, double std) = 0;
  // Draws from a normal truncated to [a, b] (absolute bounds) by inverse transform sampling
  // (torch.nn.init.trunc_normal_).
  virtual void trunc_normal(const InitTarget& target, double mean, double std, double a, double b) = 0;
};

// Draws from PyTorch's own stream, for CPU. torch.manual_seed(seed) and the same calls in the same order on full
// tensors give the same bits. Every rank draws the full stream in small blocks and keeps its part, so no rank holds a
// full parameter.
class SequentialInitializer : public Initializer {
 public:
  explicit SequentialInitializer(std::uint64_t seed);
  void normal(const InitTarget& target, double mean, double std) override;
  void trunc_normal(const InitTarget& target, double mean, double std, double a, double b) override;

 private:
  at::Generator generator_;
};

// Draws from a counter-based generator keyed by seed, parameter name and element, for accelerators: a rank draws only
// its own part.
class CounterInitializer : public Initializer {
 public:
  explicit CounterInitializer(std::uint64_t seed) : seed_(seed) {}
  void normal(const InitTarget& target, double mean, double std) override;
  void trunc_normal(const InitTarget& target, double mean, double std, double a, double b) override;
  void uniform(const InitTarget& target, double low, double high);  // in [low, high)

 private:
  std::uint64_t seed_;
};

// Draws nothing: init_weights() then only computes the model's tables, for weights that come from elsewhere.
class BuffersOnly final : public Initializer {
 public:
  void normal(const InitTarget&, double, double) override {}
  void trunc_normal(const InitTarget&, double, double, double, double) override {}
};

}  // namespace titan::nn
