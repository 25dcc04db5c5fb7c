#include "nn/ops/rope.h"

#include <ATen/ATen.h>

#include <numbers>

namespace titan::nn {
namespace {

at::Tensor scaled(const at::Tensor& freqs, const RopeScaling& scaling) {
  const double original = static_cast<double>(scaling.original_max_position_embeddings);
  const auto wavelen = (2 * std::numbers::pi) / freqs;
  const double high_wavelen = original / scaling.high_freq_factor;
  const double low_wavelen = original / scaling.low_freq_factor;
  const auto stretched = at::where(wavelen > low_wavelen, freqs / scaling.scaling_factor, freqs);
  const auto smooth =
      (original / wavelen - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  const auto blended = (1 - smooth) * stretched / scaling.scaling_factor + smooth * stretched;
  const auto is_medium = at::logical_and(wavelen >= high_wavelen, wavelen <= low_wavelen);
  return at::where(is_medium, blended, stretched);
}

}  // namespace

at::Tensor precompute_freqs_cis(std::int64_t head_dim, std::int64_t seq_len, double theta,
                                const std::optional<RopeScaling>& scaling, at::Device device) {
  // A meta table is computed on CPU: not every operator here works without values, and the table is small.
  const auto options = at::TensorOptions().device(device.is_meta() ? at::kCPU : device);
  const auto exponents = at::arange(0, head_dim, 2, options).slice(0, 0, head_dim / 2).to(at::kFloat) / head_dim;
  at::Tensor freqs = 1.0 / at::pow(theta, exponents);
  if (scaling) freqs = scaled(freqs, *scaling);
  const auto angles = at::outer(at::arange(seq_len, options), freqs).to(at::kFloat);
  return at::polar(at::ones_like(angles), angles).to(device);  // [seq_len, head_dim / 2]
}

}  // namespace titan::nn
