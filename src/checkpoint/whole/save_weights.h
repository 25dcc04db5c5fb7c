// Saves a model as one file of torch.save, on rank 0's host.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "checkpoint/dcp/checkpoint_io.h"
#include "checkpoint/dcp/item.h"
#include "checkpoint/dcp/ranks.h"

namespace titan::checkpoint {

// Writes the tensors of `items`, cast to `dtype`, to `folder`/model.pt: a dict of name -> tensor that
// torch.load(weights_only=True) opens, in which the names of a tied parameter share a storage. The ranks send their
// boxes to rank 0 in blocks of about `block_bytes`, a tensor at a time, and rank 0 alone writes: no rank holds more
// than a few blocks besides its shards. Folder, checksums and errors are those of save() in checkpoint_io.h.
// Collective. Returns the bytes of all files.
std::uint64_t save_weights(const std::filesystem::path& folder, const std::vector<Item>& items, c10::ScalarType dtype,
                           Ranks& ranks, const SaveOptions& options = {}, std::int64_t block_bytes = 8 << 20);

}  // namespace titan::checkpoint
