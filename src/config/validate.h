// Checks between keys. Those of single values are in fields.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "config/keys/source.h"

namespace titan::config {

struct Findings {
  std::vector<Fault> errors;  // each names the keys in conflict, and a change that fixes it
  std::vector<std::string> warnings;
};

// Everything between keys. Without `world_size`, what can be said without knowing the number of ranks.
Findings cross_check(const JobConfig& config, std::optional<std::int64_t> world_size = {});

// As above. Returns the warnings; throws one ConfigError with all the errors.
std::vector<std::string> validate(const JobConfig& config, std::optional<std::int64_t> world_size = {});

// data_parallel_shard_degree with -1 resolved to the ranks that the other degrees leave. Throws ConfigError, naming all
// the factors, when the degrees do not multiply to `world_size`.
std::int64_t resolve_shard_degree(const Parallelism& parallelism, std::int64_t world_size);

// The number in parallelism.fsdp_reshard_after_forward, nothing where it is a word. Throws ConfigError when it does not
// divide the shard degree.
std::optional<std::int64_t> reshard_group_size(const Parallelism& parallelism, std::int64_t shard_degree);

// Microbatches of one step: global_batch_size / (local_batch_size * data-parallel ranks), 1 for -1. Throws ConfigError
// with the nearest sizes that divide.
std::int64_t num_accumulation_steps(const JobConfig& config, std::int64_t world_size);

}  // namespace titan::config
