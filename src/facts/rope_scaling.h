// Frequency scaling of rotary position embeddings, as in Llama 3.1.
#pragma once

#include <cstdint>

namespace titan {

// Wavelengths above original_max_position_embeddings / low_freq_factor are stretched by `scaling_factor`, those below
// original_max_position_embeddings / high_freq_factor are kept, those between are blended.
struct RopeScaling {
  double scaling_factor = 8.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_max_position_embeddings = 8192;
};

}  // namespace titan
