// Names of the parameters that LoRA adds to a linear layer, beside its weight: "layers.3.attention.wq.lora_A".
#pragma once

#include <string_view>

namespace titan {

inline constexpr const char *kLoraA = "lora_A", *kLoraB = "lora_B";

// True for the name of such a parameter, within its module or in the model.
inline bool is_adapter_name(std::string_view fqn) {
  const auto last = fqn.substr(fqn.rfind('.') + 1);  // npos + 1 is 0
  return last == kLoraA || last == kLoraB;
}

// Returns the name of the layer that has the adapter, "layers.3.attention.wq".
inline std::string_view layer_of_adapter(std::string_view fqn) { return fqn.substr(0, fqn.rfind('.')); }

}  // namespace titan
