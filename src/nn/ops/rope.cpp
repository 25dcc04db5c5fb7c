#include "nn/ops/rope.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace titan::nn {
namespace {

at::Tensor scaled_as_llama3(const at::Tensor& freqs, const RopeScaling& scaling) {
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

// Returns the dim, as a fraction, whose wavelength turns `turns` times in the original length.
double dim_of_turns(double turns, std::int64_t head_dim, double theta, const RopeScaling& scaling) {
  const double length = static_cast<double>(scaling.original_max_position_embeddings);
  return static_cast<double>(head_dim) * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

at::Tensor scaled_as_yarn(const at::Tensor& freqs, std::int64_t head_dim, double theta, const RopeScaling& scaling) {
  const double first = std::max(std::floor(dim_of_turns(scaling.beta_fast, head_dim, theta, scaling)), 0.0);
  double last =
      std::min(std::ceil(dim_of_turns(scaling.beta_slow, head_dim, theta, scaling)), static_cast<double>(head_dim - 1));
  if (first == last) last += 0.001;  // a ramp needs a length
  const auto dims = at::arange(head_dim / 2, freqs.options());
  const auto stretched_part = ((dims - first) / (last - first)).clamp(0, 1);
  return freqs / scaling.scaling_factor * stretched_part + freqs * (1 - stretched_part);
}

at::Tensor scaled(const at::Tensor& freqs, std::int64_t head_dim, double theta, const RopeScaling& scaling) {
  switch (scaling.type) {
    case RopeScalingType::kLinear:
      return freqs / scaling.scaling_factor;
    case RopeScalingType::kYarn:
      return scaled_as_yarn(freqs, head_dim, theta, scaling);
    case RopeScalingType::kLlama3:
      break;
  }
  return scaled_as_llama3(freqs, scaling);
}

double attention_factor(const RopeScaling& scaling) {
  if (scaling.type != RopeScalingType::kYarn) return 1;
  return scaling.attention_factor.value_or(0.1 * std::log(std::max(scaling.scaling_factor, 1.0)) + 1);
}

}  // namespace

at::Tensor precompute_freqs_cis(std::int64_t head_dim, std::int64_t seq_len, double theta,
                                const std::optional<RopeScaling>& scaling, at::Device device) {
  // A meta table is computed on CPU: not every operator here works without values, and the table is small.
  const auto options = at::TensorOptions().device(device.is_meta() ? at::kCPU : device);
  const auto exponents = at::arange(0, head_dim, 2, options).slice(0, 0, head_dim / 2).to(at::kFloat) / head_dim;
  at::Tensor freqs = 1.0 / at::pow(theta, exponents);
  if (scaling) freqs = scaled(freqs, head_dim, theta, *scaling);
  const auto angles = at::outer(at::arange(seq_len, options), freqs).to(at::kFloat);
  const auto lengths = at::full_like(angles, scaling ? attention_factor(*scaling) : 1);
  return at::polar(lengths, angles).to(device);  // [seq_len, head_dim / 2]
}

}  // namespace titan::nn
