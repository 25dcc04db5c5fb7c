// Makes the Hugging Face names and config.json of a decoder, of whatever family.
#pragma once

#include <string>

#include "facts/model_naming.h"
#include "models/common/hub/hugging_face_config.h"

namespace titan::models {

// Calls read_hub_config() with the rules of one family.
using ReadHubConfig = HubDecoder (*)(const std::string& config_json, const std::string& what);

// Returns the Hugging Face names and config.json of a decoder.
ModelNaming decoder_naming(const HubDecoder& model, const HubFamily& family, ReadHubConfig read);

}  // namespace titan::models
