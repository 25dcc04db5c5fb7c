// Copies a model from one format to another, block by block. Independent of the model: the caller gives the target name
// of each tensor and the order of its rows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/stream/tensor_sink.h"
#include "checkpoint/stream/tensor_source.h"

namespace titan::checkpoint {

enum class CheckpointKind { kDcp, kHuggingFace, kTorch };

// Returns "dcp", "hf" or "torch".
const char* kind_name(CheckpointKind kind);

// Detects the format at `path`: a folder with .metadata, a folder or file of safetensors, a zip file of torch.save, or
// the folder of a save that is one such file.
// Throws CheckpointError that says what was found if it is none of them.
CheckpointKind detect_kind(const std::filesystem::path& path);

// Returns the file of a kTorch checkpoint: `path`, or the file in that folder.
std::filesystem::path torch_file(const std::filesystem::path& path);

std::unique_ptr<TensorSource> open_source(const std::filesystem::path& path, CheckpointKind kind);

// Compares the small files of a checkpoint with its checksums, before any of them is believed. Throws CheckpointError
// for one that was changed in a DCP folder or beside one of our saves in one file. Warns of one in a Hugging Face
// folder, whose small files people edit. Checkpoints without checksums pass.
void check_texts(const std::filesystem::path& path, CheckpointKind kind);

enum class RowOrder { kSame, kToHuggingFace, kFromHuggingFace };

struct Conversion {
  std::size_t source = 0;  // index into the source's tensors
  TensorInfo target;       // has the source's shape unless `index` or `stacked_with` is set; other dtypes are cast
  RowOrder order = RowOrder::kSame;
  std::int64_t heads = 0;  // unless kSame: rows are reordered within each head
  // The target is this index of the source's dim 0, without that dim.
  std::optional<std::int64_t> index = {};
  // The target stacks `source` (its index 0) and these tensors of the source along a new dim 0.
  std::optional<std::vector<std::size_t>> stacked_with = {};
};

// Reorders the rows of full heads, [k * head_size, ...]. `order` must not be kSame.
at::Tensor reorder_rows(const at::Tensor& rows, std::int64_t head_size, RowOrder order);

// Throws CheckpointError for heads that do not divide the rows into pairs, and for stacked tensors of different shapes.
void check_conversions(const TensorSource& source, const std::vector<Conversion>& conversions);

// Throws unequal_ties() if two tensors of the source, which are one parameter of the model, differ in shape or values.
void check_equal(TensorSource& source, std::size_t first, std::size_t second, std::uint64_t block_bytes = 8 << 20);

// Runs the conversions in order, verifies the source, then finishes the sink. `block_bytes`: size of one read, at least
// one row or one head. Returns the bytes written. Throws CheckpointError for a finite value that the target's dtype
// cannot hold, unless `may_overflow`.
std::uint64_t convert(TensorSource& source, TensorSink& sink, const std::vector<Conversion>& conversions,
                      std::uint64_t block_bytes = 8 << 20, bool may_overflow = false);

}  // namespace titan::checkpoint
