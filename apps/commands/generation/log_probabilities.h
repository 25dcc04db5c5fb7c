// The log-probabilities of a sample's tokens, for `titan-train generate --logprobs`.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace titan {

class LogProbabilities {
 public:
  // `num_likeliest`: how many of the likeliest tokens are kept at each place, at most V.
  explicit LogProbabilities(std::int64_t num_likeliest) : num_likeliest_(num_likeliest) {}

  // Adds the place at which `id` was chosen from `logits` [V], of any dtype and device.
  void add(const at::Tensor& logits, std::int64_t id);

  // Returns members of a JSON object: "logprobs", a number for each place, and "top_logprobs", a list of [id, number]
  // for each, the likeliest first.
  std::string json_members() const;

 private:
  using Scored = std::pair<std::int64_t, double>;
  struct Place {
    double chosen;
    std::vector<Scored> likeliest;
  };
  std::int64_t num_likeliest_;
  std::vector<Place> places_;
};

}  // namespace titan
