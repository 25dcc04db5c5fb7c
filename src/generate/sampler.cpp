#include "generate/sampler.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace titan::generate {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

at::Tensor keep_top_k(const at::Tensor& scores, std::int64_t k) {
  const auto lowest = std::get<0>(scores.topk(std::min(k, scores.size(0))))[-1];
  return scores.masked_fill(scores < lowest, kNever);
}

// Removes the least likely tokens whose probabilities sum to at most 1 - p. The likeliest always stays.
at::Tensor keep_top_p(const at::Tensor& scores, double p) {
  const auto [sorted, order] = scores.sort(/*dim=*/0, /*descending=*/false);
  auto goes = sorted.softmax(0).cumsum(0) <= 1 - p;
  goes[-1].fill_(false);
  return scores.masked_fill(at::zeros_like(goes).scatter(0, order, goes), kNever);
}

}  // namespace

at::Tensor probabilities(const at::Tensor& logits, const Sampling& sampling) {
  TITAN_CHECK(sampling.temperature > 0, "nothing is drawn at temperature 0");
  auto scores = logits.to(at::kCPU, at::kFloat) / sampling.temperature;
  if (sampling.top_k) scores = keep_top_k(scores, *sampling.top_k);
  if (sampling.top_p && *sampling.top_p < 1) scores = keep_top_p(scores, *sampling.top_p);
  return scores.softmax(0);
}

Sampler::Sampler(const Sampling& sampling, std::uint64_t seed)
    : sampling_(sampling), generator_(at::detail::createCPUGenerator(seed)) {}

std::int64_t Sampler::pick(const at::Tensor& logits) {
  if (!logits.isfinite().all().item<bool>())
    throw Error(
        "the model's logits are not finite numbers, so no token can be chosen: its weights are damaged, or training "
        "diverged. Try an earlier checkpoint",
        kExitFailed);
  if (sampling_.temperature == 0) return logits.argmax(0).item<std::int64_t>();
  return at::multinomial(probabilities(logits, sampling_), 1, /*replacement=*/false, generator_).item<std::int64_t>();
}

}  // namespace titan::generate
