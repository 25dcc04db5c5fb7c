// Builds the models that catalog.h lists.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/job_config.h"
#include "contract/train_contract.h"

namespace titan::models {

// Returns the spec of [model].name, with the sizes of its flavor and [model.args]. `seq_len`: training.seq_len. Does
// not build the model. Throws ConfigError.
TrainSpec make_train_spec(const config::Model& model, std::int64_t seq_len);

// Same with the adapters of [lora], if it has a rank. Builds the model then, on the meta device
// (models/common/lora/adapters.h).
TrainSpec make_train_spec(const config::Model& model, const config::Lora& lora, std::int64_t seq_len);

// Returns the spec of a model that a config.json of Hugging Face's transformers describes; `what` names the file.
// `seq_len` defaults to its longest sequence. Throws ConfigError for a model that cannot be built here.
TrainSpec make_train_spec_of_hugging_face(const std::string& config_json, const std::string& what,
                                          std::optional<std::int64_t> seq_len = std::nullopt);

// Returns our name of the parameter that is `name` in Hugging Face's format; nullopt if no model has it.
std::optional<std::string> parameter_of_hub_name(const std::string& name);

}  // namespace titan::models
