#include "apps/commands/generation/log_probabilities.h"

#include <ATen/ATen.h>

#include <array>
#include <charconv>
#include <tuple>

#include "base/text.h"

namespace titan {
namespace {

// Logits are in float32 at most: a float's digits are all that there is.
std::string float_text(double value) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), static_cast<float>(value)).ptr;
  return {digits.data(), end};
}

}  // namespace

void LogProbabilities::add(const at::Tensor& logits, std::int64_t id) {
  const auto scores = logits.to(at::kCPU, at::kDouble).log_softmax(0);
  const auto [values, ids] = scores.topk(num_likeliest_);
  Place place{scores[id].item<double>(), {}};
  for (std::int64_t i = 0; i < num_likeliest_; ++i)
    place.likeliest.emplace_back(ids[i].item<std::int64_t>(), values[i].item<double>());
  places_.push_back(std::move(place));
}

std::string LogProbabilities::json_members() const {
  std::vector<std::string> chosen, likeliest;
  for (const Place& place : places_) {
    chosen.push_back(float_text(place.chosen));
    std::vector<std::string> scored;
    for (const auto& [id, score] : place.likeliest)
      scored.push_back("[" + std::to_string(id) + "," + float_text(score) + "]");
    likeliest.push_back("[" + join(scored, ",") + "]");
  }
  return "\"logprobs\":[" + join(chosen, ",") + "],\"top_logprobs\":[" + join(likeliest, ",") + "]";
}

}  // namespace titan
