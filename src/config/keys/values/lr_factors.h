// The entries of optimizer.lr_factors.
#pragma once

#include <string>

#include "config/job_config.h"
#include "config/keys/source.h"

namespace titan::config {

// One entry, "PATTERN=FACTOR": "tok_embeddings.*=0.1".
struct LrFactor {
  std::string pattern;  // of parameters' names; * stands for any text
  double factor = 1;    // 0 or more
};

// Throws ConfigError naming the entry.
LrFactor parse_lr_factor(const std::string& text);

// Finds errors in the entries.
std::vector<Fault> find_wrong_lr_factors(const JobConfig& config);

}  // namespace titan::config
