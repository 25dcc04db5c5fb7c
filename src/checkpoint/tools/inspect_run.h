// Inspects the steps of a run, and how far the run has come.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace titan::checkpoint {

// One folder step-N, step-N.tmp or step-N.replaced of a run.
struct StepInfo {
  std::string name;
  std::int64_t step = 0;
  // Unreadable: an error of the system; it may be whole.
  enum class State { kComplete, kIncomplete, kDamaged, kUnreadable } state = State::kIncomplete;
  std::string holds;   // "full", "model only", "model, optimizer", "Hugging Face"; empty if not known
  std::string detail;  // why it is not complete
  std::uint64_t bytes = 0;
  std::optional<std::int64_t> saved_at;  // seconds since 1970, when it became complete
  std::optional<std::int64_t> ranks;     // number of ranks that saved it
};

// Returns the step folders in `folder`, sorted by step; empty if there are none.
std::vector<StepInfo> inspect_run(const std::filesystem::path& folder);

// Returns the newest complete step, of kind `holds` if that is given, or null if there is none.
const StepInfo* newest_complete(const std::vector<StepInfo>& steps, const std::string& holds = "");

// One row of a run's metrics.jsonl.
struct LoggedStep {
  std::int64_t step = 0;
  std::optional<double> loss;  // nullopt if it was not a number
  std::int64_t tokens_seen = 0;
  double unix_time = 0;  // when the step ended
};

// Returns the loss of the last row up to `step`: "3.47891", or "3.47891 (step 240)" if that row is of an earlier step,
// or "" without such a row.
std::string loss_text(const std::vector<LoggedStep>& rows, std::int64_t step);

// A run's dump folder.
struct RunInfo {
  std::filesystem::path path;
  std::string model;  // "llama3 debugmodel"; "" without a config.toml
  std::string mesh;   // "dp_shard 2 x tp 2", of the newest checkpoint; empty if not known or one rank
  enum class State { kNotBegun, kRunning, kStopped, kFinished } state = State::kNotBegun;
  std::int64_t step = 0;         // the last step known to be done
  std::int64_t total_steps = 0;  // training.steps; 0: not known
  std::vector<LoggedStep> rows;
  std::filesystem::path checkpoints;  // the folder of its steps; may be missing
  std::vector<StepInfo> steps;
  std::string next;  // the command that resumes it, or why there is none
};

}  // namespace titan::checkpoint
