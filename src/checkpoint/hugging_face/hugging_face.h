// Writes and reads a model in Hugging Face's folder format (model*.safetensors, an index, config.json), by all ranks
// together. No rank ever holds more than its own shards: each writes its rows to their place in the files, and reads
// only those.
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

// Returns the row in Hugging Face's format of row `row` of ours, of `rows` rows in `heads` heads.
std::int64_t rotary_row(std::int64_t row, std::int64_t rows, std::int64_t heads);

// Writes `folder` with the tensors of `items`, cast to `dtype`, in files of at most `file_bytes` (a larger tensor has
// one of its own). Under a temporary name until everything is on the disk. Collective. Throws CheckpointError on all
// ranks. Gives the bytes of all files.
std::uint64_t save_hugging_face(const std::filesystem::path& folder, const std::vector<Item>& items,
                                const HuggingFaceFormat& format, c10::ScalarType dtype, Ranks& ranks,
                                std::uint64_t file_bytes = 5'000'000'000);

// Fills the tensors of `items` from the weights of `folder` (WeightFiles), casting. Collective. Throws one
// CheckpointError, on all ranks, that lists every tensor that is missing or has another shape, with
// `all_weights` (the items are a whole model) also those that no item wants.
void load_hugging_face(const std::filesystem::path& folder, const std::vector<Item>& items,
                       const HuggingFaceFormat& format, Ranks& ranks, bool all_weights = false);

}  // namespace titan::checkpoint
