// The adapter_config.json that PEFT, Hugging Face's library of adapters, reads. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace titan::models {

struct PeftLora {
  std::int64_t rank = 0;
  double alpha = 0;
  double dropout = 0;
  std::vector<std::string> target_modules;  // "q_proj", or in full "model.layers.3.self_attn.q_proj"
  std::optional<std::string> base_model;    // folder or name of the model that the adapters are for, if it is known
};

// Returns the text of the file.
std::string peft_config(const PeftLora& lora);

}  // namespace titan::models
