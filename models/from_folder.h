// Completes a configuration that names the folder of a model in Hugging Face's format (model.from). No torch.
#pragma once

#include <string>
#include <vector>

#include "config/job_config.h"
#include "config/keys/source.h"
#include "models/catalog.h"
#include "models/common/hub/hugging_face_config.h"

namespace titan::models {

// Sets what the folder decides, unless it was given (`given` has the keys that were): model.name and all sizes in
// model.args from its config.json, model.hf_assets_path if it has a tokenizer, and the keys of [checkpoint] that load
// its weights. The result is complete: a saved configuration can be read when the folder is gone. Returns the keys that
// it set. Appends what cannot be used or contradicts the folder to `errors`. Does nothing without model.from.
std::vector<std::string> complete_from_folder(config::JobConfig& config, const config::Origins& given,
                                              std::vector<config::Fault>& errors, std::vector<std::string>& warnings);

// Returns the [model.args] that make an entry's decoder this one. Throws InternalError if the keys cannot say it.
config::ModelArgs args_of(const HubDecoder& decoder, const CatalogEntry& entry);

}  // namespace titan::models
