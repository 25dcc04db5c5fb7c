// Which models there are. One line an entry; README.md here is the recipe for a new one.
#pragma once

#include <string>
#include <vector>

#include "config/job_config.h"
#include "contract/train_spec.h"

namespace titan::models {

std::vector<std::string> model_names();

// The spec of [model].name, sized by its flavor and [model.args]. `seq_len`: training.seq_len. Builds nothing yet.
// Throws ConfigError.
TrainSpec make_train_spec(const config::Model& model, std::int64_t seq_len);

}  // namespace titan::models
