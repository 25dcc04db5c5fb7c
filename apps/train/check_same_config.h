// Whether all ranks were given the same configuration.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "distributed/world.h"

namespace titan {

// "training.steps = 10" for every key that must have one value on all ranks, in the order of config::fields(). Where
// files lie may differ between machines.
std::vector<std::string> shared_values(const config::JobConfig& config);

// What is wrong where `mine` are the shared_values() of `rank` and `of_rank_0` those of rank 0; nothing where they
// agree.
std::optional<std::string> find_disagreement(const std::vector<std::string>& mine,
                                             const std::vector<std::string>& of_rank_0, int rank);

// Ranks with different configurations would block in different collectives. Throws ConfigError on those that differ
// from rank 0. Collective.
void check_same_config(const config::JobConfig& config, const dist::World& world);

}  // namespace titan
