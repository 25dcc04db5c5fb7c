// Shapes of the dense Qwen2 and Qwen2.5 models, which are one architecture.
#pragma once

#include <string>
#include <vector>

#include "config/job_config.h"
#include "config/keys/source.h"
#include "models/catalog.h"
#include "models/common/hub/hugging_face_config.h"

namespace titan::models {

// The reason why a model without biases has no config.json.
inline constexpr const char* kNoQkvBias =
    "Hugging Face's Qwen2 always adds biases to queries, keys and values, and model.args.qkv_bias is false";

// Returns the flavors by name. `model` is "qwen2".
std::vector<std::string> qwen2_flavor_names(const std::string& model);
// Returns values to start from.
std::vector<Start> qwen2_starts(const std::string& model);

// Appends the keys of [model.args] that Qwen2 does not have, and contradictions among the others.
void check_qwen2_args(const config::JobConfig& config, std::vector<config::Fault>& errors);

// Returns the flavor of [model] with the overrides of [model.args]. Throws ConfigError for an unknown flavor or an
// invalid shape.
HubDecoder qwen2_decoder(const config::Model& model);

}  // namespace titan::models
