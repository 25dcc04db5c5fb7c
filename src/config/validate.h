// Checks that compare several keys. fields.h has the checks of single values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "config/keys/source.h"

namespace titan::config {

struct Findings {
  std::vector<Fault> errors;  // each names the conflicting keys and a change that fixes it
  std::vector<std::string> warnings;
};

// Runs all checks between keys; without `world_size`, only those that do not need the number of ranks.
Findings cross_check(const JobConfig& config, std::optional<std::int64_t> world_size = {});

// Runs the same checks. Returns the warnings; throws one ConfigError with all errors.
std::vector<std::string> validate(const JobConfig& config, std::optional<std::int64_t> world_size = {});

// Returns data_parallel_shard_degree, with -1 resolved to `world_size` divided by the other degrees. Throws ConfigError
// that names all factors if the product of the degrees is not `world_size`.
std::int64_t resolve_shard_degree(const Parallelism& parallelism, std::int64_t world_size);

// Returns the number of ranks that read different data. Throws as resolve_shard_degree().
std::int64_t num_data_parallel_ranks(const Parallelism& parallelism, std::int64_t world_size);

// Returns the number in parallelism.fsdp_reshard_after_forward, or nullopt if it is a word. Throws ConfigError if the
// number does not divide the shard degree.
std::optional<std::int64_t> reshard_group_size(const Parallelism& parallelism, std::int64_t shard_degree);

// Returns the microbatches per step: global_batch_size / (local_batch_size * data-parallel ranks), 1 for -1. Throws
// ConfigError with the nearest valid sizes if it does not divide.
std::int64_t num_accumulation_steps(const JobConfig& config, std::int64_t world_size);

}  // namespace titan::config
