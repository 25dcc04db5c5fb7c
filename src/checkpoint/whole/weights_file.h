// Opens one file with all weights of a model: a state dict of torch.save, or safetensors, under our names.
#pragma once

#include <filesystem>
#include <memory>

#include "checkpoint/stream/tensor_source.h"

namespace titan::checkpoint {

// Throws CheckpointError for a file that open_weights_file() does not read, with the command that converts it: another
// ending than .pt, .pth or .safetensors, or the format of torch.save before PyTorch 1.6. Reads a few bytes.
void check_weights_file(const std::filesystem::path& file);

// Opens the file; nothing in it is executed. The names are without the parts of wrappers (_orig_mod. and the like).
// Throws CheckpointError as check_weights_file(), and for content that is not a dict of tensors.
std::unique_ptr<TensorSource> open_weights_file(const std::filesystem::path& file);

// True if a tensor has a name of Hugging Face's format: "model.layers.0.mlp.up_proj.weight".
bool has_hugging_face_names(const TensorSource& source);

}  // namespace titan::checkpoint
