// Names of a decoder's parameters in Hugging Face's format, from tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "facts/model_naming.h"

namespace titan::models {

// A module with a weight, here and in Hugging Face's format: "attention.wq", "self_attn.q_proj".
struct HubName {
  std::string ours;
  std::string theirs;
  std::int64_t rotary_heads = 0;  // as HubTensor::rotary_heads
};

struct HubNames {
  std::vector<HubName> outside;  // of the blocks: {"norm", "model.norm"}
  std::vector<HubName> block;    // below "layers.N." here and "model.layers.N." there
};

// Sets naming.to_hub and naming.from_hub to what the tables say. All parameters are called ".weight".
void set_names(ModelNaming& naming, const HubNames& names);

}  // namespace titan::models
