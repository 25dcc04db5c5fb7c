// Makes the TrainSpec of a decoder, of whatever family.
#pragma once

#include <cstdint>
#include <string>

#include "config/job_config.h"
#include "contract/train_contract.h"
#include "models/common/hub/hugging_face_config.h"

namespace titan::models {

// Returns the spec of a decoder. `name`: "llama3 8B". `seq_len`: number of rows of the rotary table.
TrainSpec decoder_spec(const std::string& name, const HubDecoder& model, std::int64_t seq_len, ModelNaming naming);

// Same for the [model] section of a job. Warns if its sequences are longer than the model was made for.
TrainSpec decoder_spec_of_job(const config::Model& job, const HubDecoder& model, std::int64_t seq_len,
                              ModelNaming naming);

}  // namespace titan::models
