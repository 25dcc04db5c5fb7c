// Maps a decoder's parameter names to Hugging Face's format and back, by tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "facts/model_naming.h"

namespace titan::models {

// Names of a module with a weight: ours "attention.wq", Hugging Face's "self_attn.q_proj".
struct HubName {
  std::string ours;
  std::string theirs;
  std::int64_t rotary_heads = 0;  // see HubTensor::rotary_heads
  bool has_bias = false;
};

struct HubNames {
  std::vector<HubName> outside;  // modules that are not in a block: {"norm", "model.norm"}
  std::vector<HubName> block;    // below "layers.N." here and "model.layers.N." there
};

// Sets naming.to_hub and naming.from_hub from the tables. Parameters are called ".weight" and ".bias".
void set_names(ModelNaming& naming, const HubNames& names);

}  // namespace titan::models
