// Checks that all ranks have the same configuration.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "distributed/world.h"

namespace titan {

// Returns "training.steps = 10" for every key that must be equal on all ranks, in the order of config::fields(). Paths
// of files may differ between machines; the text of the chat template ("" for none) may not.
std::vector<std::string> shared_values(const config::JobConfig& config, const std::string& chat_template = "");

// Returns what is wrong if `mine`, the shared_values() of `rank`, differ from `of_rank_0`, those of rank 0; nullopt if
// they agree.
std::optional<std::string> find_disagreement(const std::vector<std::string>& mine,
                                             const std::vector<std::string>& of_rank_0, int rank);

// Throws ConfigError on ranks whose configuration differs from rank 0's: they would hang in different collectives.
// `chat_template`: as above. Collective.
void check_same_config(const config::JobConfig& config, const std::string& chat_template, const dist::World& world);

}  // namespace titan
