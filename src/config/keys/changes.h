// Compares the configuration that a checkpoint was saved with to the present one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/job_config.h"

namespace titan::config {

// Keys with their values as TOML writes them. Keys that do not change what is trained are skipped: the tables job,
// profiling, metrics, checkpoint, comm, validation and evaluation, and the keys that only check what is computed.
using FlatConfig = std::map<std::string, std::string>;
FlatConfig flatten(const JobConfig& config);

// Effect of a changed key on a run that resumes from a checkpoint.
enum class Effect {
  kModel,     // another model, or other weights for its tokens
  kData,      // the saved position in the data means something else
  kTraining,  // different results from here on
};

struct Change {
  std::string key;
  std::string saved;
  std::string now;
  Effect effect = Effect::kTraining;
};

// Returns the changes in the order of job_config.h. A key that `saved` lacks had its default then;
// an unknown key of `saved` is ignored. Paths that name the same place are equal.
std::vector<Change> find_changes(const FlatConfig& saved, const JobConfig& now);

}  // namespace titan::config
