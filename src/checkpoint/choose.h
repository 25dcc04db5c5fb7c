// What a starting run loads. Rank 0 chooses; nothing here is collective.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/run_facts.h"
#include "config/job_config.h"

namespace titan::checkpoint {

struct LoadChoice {
  std::string folder;  // "": there is nothing to load
  int step = 0;        // 0: the model only
  bool model_only = false;
  bool in_hf = false;
  bool is_finished = false;  // `folder` is the last save of a run that has all its steps: the model alone, for others

  bool operator==(const LoadChoice&) const = default;
};

// As rank 0 sends it to the others.
std::string encode_choice(const LoadChoice& choice);
LoadChoice decode_choice(const std::string& bytes);

// The run's own newest resumable checkpoint, else what initial_load_* names; the log says what was found, what is
// loaded, and what is not and why. `damaged`: steps that turned out to be so. Never passes over an existing run in
// silence: folders without a complete checkpoint, a load_step that does not exist and a finished model-only run throw
// CheckpointError.
LoadChoice choose_load(const config::Checkpoint& options, const RunFacts& run, std::vector<int> damaged);

// The run's own newest full state that is_of_numbers(), `damaged` left out: what a run that diverged goes back to. An
// empty folder: there is none.
LoadChoice choose_good(const RunFacts& run, const std::vector<int>& damaged);

}  // namespace titan::checkpoint
