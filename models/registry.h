// Builds the models that catalog.h lists. One row per name; README.md here is the recipe for a new one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/job_config.h"
#include "contract/train_contract.h"

namespace titan::models {

// The spec of [model].name, sized by its flavor and [model.args]. `seq_len`: training.seq_len. Builds nothing yet.
// Throws ConfigError.
TrainSpec make_train_spec(const config::Model& model, std::int64_t seq_len);

// The same for a model that a config.json of Hugging Face's transformers describes; `what` names that file. Without
// `seq_len` its longest sequence. Throws ConfigError for a model that cannot be built here.
TrainSpec make_train_spec_of_hugging_face(const std::string& config_json, const std::string& what,
                                          std::optional<std::int64_t> seq_len = std::nullopt);

// Returns the parameter that a model here calls `name` in Hugging Face's format; nullopt if none does.
std::optional<std::string> parameter_of_hub_name(const std::string& name);

}  // namespace titan::models
