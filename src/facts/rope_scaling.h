// Frequency scaling of rotary position embeddings, for sequences longer than those that a model was first trained on.
#pragma once

#include <cstdint>
#include <optional>

namespace titan {

// How frequencies are scaled. The names are those of transformers' rope_type.
//   llama3: as in Llama 3.1. Wavelengths above original_max_position_embeddings / low_freq_factor are stretched by
//           `scaling_factor`, those below original_max_position_embeddings / high_freq_factor are kept, those between
//           are blended.
//   linear: all wavelengths are stretched by `scaling_factor` (position interpolation, arXiv:2306.15595).
//   yarn:   wavelengths that turn more than beta_fast times in the original length are kept, those that turn less than
//           beta_slow times are stretched, those between are blended by a ramp over the dims; queries and keys are
//           multiplied by attention_factor (arXiv:2309.00071).
enum class RopeScalingType { kLlama3, kLinear, kYarn };

struct RopeScaling {
  RopeScalingType type = RopeScalingType::kLlama3;
  double scaling_factor = 8.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_max_position_embeddings = 8192;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  std::optional<double> attention_factor = {};  // nullopt: 0.1 ln(scaling_factor) + 1

  bool operator==(const RopeScaling&) const = default;
};

}  // namespace titan
