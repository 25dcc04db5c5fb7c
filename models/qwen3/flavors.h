// Shapes of the dense Qwen3 models.
#pragma once

#include <string>
#include <vector>

#include "config/job_config.h"
#include "config/keys/source.h"
#include "models/catalog.h"
#include "models/common/hub/hugging_face_config.h"

namespace titan::models {

// The reason why a model without QK norm has no config.json.
inline constexpr const char* kNoQkNorm =
    "Hugging Face's Qwen3 always normalizes queries and keys, and model.args.qk_norm is false";

// Returns the flavors by name. `model` is "qwen3".
std::vector<std::string> qwen3_flavor_names(const std::string& model);
// Returns values to start from.
std::vector<Start> qwen3_starts(const std::string& model);

// Appends the keys of [model.args] that Qwen3 does not have, and contradictions among the others.
void check_qwen3_args(const config::JobConfig& config, std::vector<config::Fault>& errors);

// Returns the flavor of [model] with the overrides of [model.args]. Throws ConfigError for an unknown flavor or an
// invalid shape.
HubDecoder qwen3_decoder(const config::Model& model);

}  // namespace titan::models
