#include "models/common/hub/peft_config.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace titan::models {
namespace {

using AdapterJson = nlohmann::ordered_json;

// PEFT declares alpha as an integer, and computes with any number.
AdapterJson json_number(double value) {
  if (value == std::nearbyint(value) && std::abs(value) < 1e15) return static_cast<std::int64_t>(value);
  return value;
}

}  // namespace

std::string peft_config(const PeftLora& lora) {
  const AdapterJson config = {
      {"peft_type", "LORA"},
      {"task_type", "CAUSAL_LM"},
      {"base_model_name_or_path", lora.base_model ? AdapterJson(*lora.base_model) : AdapterJson()},
      {"inference_mode", true},
      {"r", lora.rank},
      {"lora_alpha", json_number(lora.alpha)},
      {"lora_dropout", lora.dropout},
      {"target_modules", lora.target_modules},
      {"bias", "none"},
      {"fan_in_fan_out", false},
      {"modules_to_save", nullptr},
      {"use_rslora", false},
      {"use_dora", false}};
  return config.dump(2) + "\n";
}

}  // namespace titan::models
