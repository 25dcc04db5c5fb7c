// Loads a model from one file that only rank 0 reads, like PyTorch's set_model_state_dict(full_state_dict=True,
// broadcast_from_rank0=True). The other ranks need no access to the file.
#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/dcp/item.h"
#include "checkpoint/dcp/ranks.h"

namespace titan::checkpoint {

// Fills the tensors of `items`, a full model, from `file` (weights_file.h), casting to their dtypes; logs a cast. Rank
// 0 sends the rows in blocks of `block_bytes`, and each rank keeps those of its boxes. A rank needs memory for a few
// blocks; rank 0 for a tensor whose elements are not stored row by row. Collective. Throws one CheckpointError on all
// ranks that lists every tensor that is missing, unexpected or of another shape, before any weight is overwritten;
// DamagedCheckpoint if the bytes do not match their checksums. A tied parameter may be stored under either name or
// both; throws if both differ.
void load_weights(const std::filesystem::path& file, const std::vector<Item>& items, Ranks& ranks,
                  std::int64_t block_bytes = 8 << 20);

}  // namespace titan::checkpoint
