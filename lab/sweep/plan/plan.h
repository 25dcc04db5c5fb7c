// From a sweep's description to its trials, each with a checked configuration.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "lab/sweep/plan/sweep_spec.h"

namespace titan::sweep {

// The values of every trial, in order. The blocks of the file combine as a product: for each draw of [sweep.random],
// for each table of [[sweep.list]], for each row of [sweep.zip], every point of [sweep.grid], the last key fastest.
// A draw depends on the seed, the key and its number alone: more draws or another key leave the others as they are.
std::vector<std::vector<Assignment>> expand(const SweepSpec& spec);

struct PlannedTrial {
  std::string name;  // "trial-003-lr0.01-shard2", also the name of its folder
  std::vector<Assignment> values;
  config::JobConfig config;  // job.dump_folder is the trial's folder
};

struct Plan {
  std::vector<PlannedTrial> trials;
  std::vector<std::int64_t> rungs;    // [sweep.asha]: steps of each rung, rising; otherwise empty
  std::vector<std::string> warnings;  // about configurations, each once
  // Holds what decides which held-out tokens all trials look at, by key; empty where the objective is not of
  // validation.
  std::map<std::string, std::string> held_out = {};
};

// Throws one ConfigError with all faults of all trials' configurations; what several trials share is said once.
Plan make_plan(const SweepSpec& spec);

// The name of a trial with another number: "trial-003-lr0.1" and 12 are "trial-012-lr0.1".
std::string renumbered(const std::string& name, std::size_t index);

// min_steps, times reduction_factor again and again, and max_steps last.
std::vector<std::int64_t> rung_steps(const Asha& asha, std::int64_t max_steps);

// "0.001" for messages and tables: numbers with 4 digits, texts without quotes.
std::string short_text(const config::FieldValue& value);

// What to call keys where there is little room: "lr" for optimizer.lr, "shard" for
// parallelism.data_parallel_shard_degree, more of the key where that is ambiguous.
std::vector<std::string> short_keys(const std::vector<std::string>& keys);

}  // namespace titan::sweep
