// The Llama family for the registry.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/job_config.h"
#include "contract/train_contract.h"

namespace titan::models {

// Of the [model] section. Warns of sequences that are longer than those the flavor is made for. Throws ConfigError.
TrainSpec llama_spec(const config::Model& model, std::int64_t seq_len);

// Of a config.json; `what` names that file. Without `seq_len` the longest sequence. Throws ConfigError.
TrainSpec llama_spec_of_hugging_face(const std::string& config_json, const std::string& what,
                                     std::optional<std::int64_t> seq_len);

}  // namespace titan::models
