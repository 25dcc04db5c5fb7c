// Chooses the next token: the likeliest, or a random one.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace titan::generate {

struct Sampling {
  double temperature = 1.0;                // at least 0; 0: always the likeliest token
  std::optional<std::int64_t> top_k = {};  // at least 1: only this many of the likeliest tokens, and ties with the last
  std::optional<double> top_p = {};  // above 0, up to 1: only the likeliest tokens that together reach this probability
};

// Returns the probabilities from which a token is drawn, float32 [V] on CPU: temperature, then top-k, then top-p, each
// as transformers' generate() defines it. logits [V], any floating dtype and device; the temperature must be above 0.
at::Tensor probabilities(const at::Tensor& logits, const Sampling& sampling);

class Sampler {
 public:
  // Equal seeds draw equal tokens from equal logits, on any device.
  Sampler(const Sampling& sampling, std::uint64_t seed);

  // Returns the id of the chosen token. logits [V]. Throws Error if a logit is not finite.
  std::int64_t pick(const at::Tensor& logits);

 private:
  Sampling sampling_;
  at::Generator generator_;  // on CPU
};

}  // namespace titan::generate
