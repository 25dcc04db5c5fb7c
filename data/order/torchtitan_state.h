// The position of one data-parallel rank in TorchTitan's order, under TorchTitan's keys.
#pragma once

#include <cstdint>
#include <vector>

#include "contract/batch_source.h"

namespace titan::data {

struct TorchTitanState {
  std::int64_t num_batches = 0;                 // returned so far
  std::int64_t sample_idx = 0;                  // documents of the rank's block tokenized since the last re-loop
  std::vector<std::int64_t> token_buffer = {};  // their tokens that are not in a returned batch yet
};

// A data-parallel rank, and the number of them.
struct DataRank {
  std::int64_t rank = 0;
  std::int64_t size = 1;
};

// Returns dataloader.dp_rank_<rank>, the state of torchdata's StatefulDataLoader, and dataloader.world_size.
// `batch_size` is the number of samples per batch, from which torchdata's own count of samples is computed.
std::vector<StateEntry> to_entries(const TorchTitanState& state, const DataRank& rank, std::int64_t batch_size);

// Throws CheckpointError if `saved` has no position of this rank, or one of a loader with worker processes.
TorchTitanState parse_torchtitan_state(const Values& saved, std::int64_t rank);

}  // namespace titan::data
