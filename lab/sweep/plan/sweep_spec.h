// A sweep, as described by its TOML file. docs/sweeps.md has the file's keys.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/keys/fields.h"

namespace titan::sweep {

// A key of a job with the value that a trial gives it.
struct Assignment {
  std::string key;
  config::FieldValue value;

  bool operator==(const Assignment&) const = default;
};

// A key with the values that it takes, one after the other.
struct Axis {
  std::string key;
  std::vector<config::FieldValue> values;
};

// A key whose value is drawn at random.
struct Draw {
  enum class Kind { kUniform, kLogUniform, kIntUniform, kChoice };

  std::string key;
  Kind kind = Kind::kUniform;
  double low = 0, high = 0;                 // not for kChoice; kIntUniform includes both
  std::vector<config::FieldValue> choices;  // for kChoice
};

// Reduces a run's metrics to one number.
struct Objective {
  std::string field =
      "loss";  // a column of metrics.jsonl, validation.loss, validation.perplexity, or evaluation.TASK/SCORE
  std::string reduction = "last";  // last, min, max, or mean (of the last `window` rows)
  std::int64_t window = 10;
  bool maximize = false;

  bool operator==(const Objective&) const = default;
};

// Returns the objective of a column: its last row; higher is better for rates and tokens seen.
// Throws ConfigError, with the nearest column, for a column that cannot be compared.
Objective objective_named(const std::string& field);

// True if the objective is a column of validation.jsonl.
inline bool is_of_validation(const Objective& objective) { return objective.field.starts_with("validation."); }

// True if the objective is a column of evaluation.jsonl.
inline bool is_of_evaluation(const Objective& objective) { return objective.field.starts_with("evaluation."); }

// True if the objective has a value after passes without training only. A trial makes one after its last step.
inline bool is_of_pass(const Objective& objective) {
  return is_of_validation(objective) || is_of_evaluation(objective);
}

// Successive halving. Trials train to the first rung; the best 1/reduction_factor of those that
// reach it continue to the next rung, which is reduction_factor times as far.
struct Asha {
  std::int64_t min_steps = 1;
  std::int64_t reduction_factor = 3;
  std::optional<std::int64_t> max_steps;  // nullopt: training.steps of the job

  bool operator==(const Asha&) const = default;
};

inline constexpr std::int64_t kMostTrials = 10'000;  // of a sweep

struct SweepSpec {
  std::string name;
  std::filesystem::path base;    // the job's TOML file
  std::filesystem::path folder;  // for everything that the sweep writes
  Objective objective;
  std::optional<std::int64_t> max_parallel;
  std::int64_t nproc = 1;             // ranks per trial
  std::optional<std::int64_t> cores;  // per trial
  std::int64_t gpus = 0;              // per trial
  std::int64_t seed = 0;
  bool stop_on_failure = false;
  std::int64_t retries = 0;
  double timeout_minutes = 0;  // per start of a trial; 0: no limit
  std::string launcher;        // empty: this machine

  std::vector<Axis> grid;
  std::vector<Axis> zip;  // all of the same length
  std::vector<std::vector<Assignment>> list;
  std::vector<Draw> random;
  std::int64_t num_trials = 0;  // draws; 0 without [sweep.random]
  std::optional<Asha> asha;
};

// Returns every key that trials may differ in, each once, in the order of the file.
std::vector<std::string> swept_keys(const SweepSpec& spec);

// Reads and checks a sweep's file; the job that it names must exist, but is not read. Throws one
// ConfigError with all errors.
SweepSpec read_spec(const std::filesystem::path& file);

// Same from text; its paths are relative to the folder of `name`. The job need not exist.
SweepSpec read_spec_text(std::string_view text, const std::string& name);

}  // namespace titan::sweep
