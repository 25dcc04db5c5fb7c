// Chooses the checkpoint that a starting run loads. Called on rank 0; nothing here is collective.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/run_facts.h"
#include "config/job_config.h"

namespace titan::checkpoint {

struct LoadChoice {
  std::string folder;  // empty if there is nothing to load; with `is_file` a file
  int step = 0;        // 0 for the model only
  bool model_only = false;
  bool in_hf = false;
  bool is_file = false;                         // one file with the weights (whole/weights_file.h)
  bool is_finished = false;                     // the run has all its steps; `folder` is its last save, model only
  bool in_memory = false;                       // a copy of this run in memory (memory_copies.h)
  std::map<int, std::string> passed_over = {};  // step -> what it is instead of a checkpoint to load: "damaged"

  bool operator==(const LoadChoice&) const = default;
};

// Encodes and decodes a choice for the broadcast from rank 0.
std::string encode_choice(const LoadChoice& choice);
LoadChoice decode_choice(const std::string& bytes);

// Returns the run's own newest resumable checkpoint, or else what initial_load_* names. Logs what was found, what is
// loaded, and what is not and why. `damaged`: steps found to be damaged. A copy in memory is chosen if it is of a later
// step than every checkpoint, is none of `damaged_copies`, and load_step is not set. Never silently ignores an existing
// run: throws CheckpointError if it has no complete checkpoint, if load_step does not exist or cannot be resumed, or if
// an unfinished run has only model-only saves; ReadError if the checkpoint to load cannot be read.
LoadChoice choose_load(const config::Checkpoint& options, const RunFacts& run, std::vector<int> damaged,
                       const std::vector<int>& damaged_copies = {});

// Returns the run's newest full state that is_of_numbers() and is not in `damaged`, or a copy in memory of a later step
// that is not in `damaged_copies`, to which a diverged run rolls back. The folder is empty if there is none.
LoadChoice choose_good(const RunFacts& run, const std::vector<int>& damaged,
                       const std::vector<int>& damaged_copies = {});

}  // namespace titan::checkpoint
