// Chooses parallel degrees and recomputation for a starter configuration. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/catalog.h"

namespace titan::models {

struct StarterMesh {
  std::int64_t tp = 1, cp = 1, pp = 1;
  std::int64_t copies = 1;            // parallelism.data_parallel_replicate_degree
  std::int64_t local_batch_size = 1;  // sequences that a data-parallel rank has for each backward or pipeline
  std::string recompute;              // activation_checkpoint.mode

  // Returns the ranks that read the same sequences.
  std::int64_t ranks_of_batch() const { return tp * cp * pp; }
};

// Returns the simplest mesh of `ranks` GPUs that can train the model on sequences of start.seq_len tokens; nullopt if
// none can. docs/parallelism.md has its order: recomputation, then `tp` inside a host of 8 GPUs, then `cp`; `tp` also
// if the global batch has fewer sequences than there would be data-parallel ranks. A pipeline comes last: if a
// data-parallel rank has less than two sequences for each gather of a large model's weights. The memory is a rough sum;
// --dry-run has the exact one.
std::optional<StarterMesh> choose_mesh(const Start& start, const DecoderShape& shape, std::int64_t ranks);

}  // namespace titan::models
