// Which token follows: the likeliest, or one that is drawn.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace titan::generate {

struct Sampling {
  double temperature = 1.0;                // at least 0; 0: the likeliest token, always
  std::optional<std::int64_t> top_k = {};  // at least 1: only so many of the likeliest tokens, and what is as likely
  std::optional<double> top_p = {};  // above 0, up to 1: only the likeliest tokens that reach this probability together
};

// The probabilities from which a token is drawn, float32 [V] on CPU: temperature, then top-k, then top-p, each as
// transformers' generate() defines it. logits [V], any floating dtype and device; the temperature is above 0.
at::Tensor probabilities(const at::Tensor& logits, const Sampling& sampling);

class Sampler {
 public:
  // Equal seeds draw equal tokens from equal logits, on whatever device those are.
  Sampler(const Sampling& sampling, std::uint64_t seed);

  // The id of a token. logits [V]. Throws Error where a logit is not a finite number.
  std::int64_t pick(const at::Tensor& logits);

 private:
  Sampling sampling_;
  at::Generator generator_;  // of the CPU
};

}  // namespace titan::generate
