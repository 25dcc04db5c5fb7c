// Expands a sweep's description into trials, each with a checked configuration.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "lab/sweep/plan/sweep_spec.h"

namespace titan::sweep {

// Returns the values of every trial, in order. The blocks of the file combine as a Cartesian
// product: for each draw of [sweep.random], for each table of [[sweep.list]], for each row of
// [sweep.zip], every point of [sweep.grid], the last key fastest. A draw depends only on the seed,
// the key and its number: adding draws or another key does not change the others.
std::vector<std::vector<Assignment>> expand(const SweepSpec& spec);

struct PlannedTrial {
  std::string name;  // "trial-003-lr0.01-shard2", also the name of its folder
  std::vector<Assignment> values;
  config::JobConfig config;  // job.dump_folder is the trial's folder
};

struct Plan {
  std::vector<PlannedTrial> trials;
  std::vector<std::int64_t> rungs;    // [sweep.asha]: steps of each rung, ascending; otherwise empty
  std::vector<std::string> warnings;  // about configurations, each once
  // Settings that decide which held-out tokens all trials are validated or scored on, by key; empty if the
  // objective is a column of metrics.jsonl.
  std::map<std::string, std::string> held_out = {};
};

// Throws one ConfigError with all faults of all trials' configurations; a fault of several trials is reported once.
Plan make_plan(const SweepSpec& spec);

// Returns the name of a trial with another number: "trial-003-lr0.1" and 12 give "trial-012-lr0.1".
std::string renumbered(const std::string& name, std::size_t index);

// Returns min_steps, repeatedly multiplied by reduction_factor, and max_steps last.
std::vector<std::int64_t> rung_steps(const Asha& asha, std::int64_t max_steps);

// Formats a value for messages and tables: "0.001". Numbers have 4 digits, texts no quotes.
std::string short_text(const config::FieldValue& value);

// Returns short names of keys: "lr" for optimizer.lr, "shard" for
// parallelism.data_parallel_shard_degree; longer if that is ambiguous.
std::vector<std::string> short_keys(const std::vector<std::string>& keys);

}  // namespace titan::sweep
