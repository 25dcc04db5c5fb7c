// Writes and reads a model in Hugging Face's folder format (model*.safetensors, an index, config.json), on all ranks
// together. A rank never holds more than its own shards: it writes its rows to their place in the files, and reads only
// its rows.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/dcp/item.h"
#include "checkpoint/dcp/ranks.h"
#include "checkpoint/hugging_face/hugging_face_files.h"
#include "facts/model_naming.h"

namespace titan::checkpoint {

struct HuggingFaceFormat {
  ModelNaming naming;
  // Returns the files beside exported weights of this dtype. Called on rank 0.
  std::function<SmallFiles(c10::ScalarType dtype)> small_files;
};

// Returns the row in Hugging Face's format that holds our row `row`, of `rows` rows in `heads` heads.
std::int64_t rotary_row(std::int64_t row, std::int64_t rows, std::int64_t heads);

// Writes the tensors of `items` to `folder`, cast to `dtype`, in files of at most `file_bytes` (a larger tensor gets
// its own file). The folder has a temporary name until everything is on disk. Collective. Throws CheckpointError on all
// ranks. Returns the bytes of all files.
std::uint64_t save_hugging_face(const std::filesystem::path& folder, const std::vector<Item>& items,
                                const HuggingFaceFormat& format, c10::ScalarType dtype, Ranks& ranks,
                                std::uint64_t file_bytes = 5'000'000'000);

// Fills the tensors of `items` from the weights of `folder`, or of one file (WeightFiles), casting. Collective. Throws
// one CheckpointError on all ranks that lists every tensor that is missing or has another shape. `all_weights`: the
// items are a full model, and tensors of the folder without an item are errors too.
void load_hugging_face(const std::filesystem::path& folder, const std::vector<Item>& items,
                       const HuggingFaceFormat& format, Ranks& ranks, bool all_weights = false);

}  // namespace titan::checkpoint
