// One item of a checkpoint: a complete torch.save archive with a tensor or a value in it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/value.h"
#include "checkpoint/format/partial_read.h"
#include "checkpoint/format/torch_archive.h"
#include "checkpoint/format/zip_reader.h"
#include "checkpoint/io/file.h"

namespace titan::checkpoint {

// Append one archive to `out` and return its length in bytes. A CUDA or non-contiguous tensor is copied first.
std::uint64_t write_tensor_archive(OutputFile& out, const at::Tensor& tensor);
std::uint64_t write_value_archive(OutputFile& out, const Value& value);

// Writes the archive of a tensor whose elements come in parts, row by row.
class TensorArchiveWriter {
 public:
  TensorArchiveWriter(OutputFile& out, c10::ScalarType dtype, std::vector<std::int64_t> sizes);
  void append(const void* data, std::uint64_t size) { archive_.append(data, size); }
  // Call after all elements. Returns the length of the archive.
  std::uint64_t finish();

 private:
  TensorArchiveWriter(OutputFile& out, const TensorDescription& tensor);
  static std::string pickle_of(const TensorDescription& tensor);

  TorchArchiveWriter archive_;
};

Value read_value_archive(const ZipReader& archive);

// A tensor in an archive: its description is checked, its elements are still on disk.
class StoredTensor {
 public:
  // `archive` must outlive this. Throws CheckpointError for anything but one plain tensor.
  explicit StoredTensor(const ZipReader& archive);
  // Takes one of several tensors, as parse_tensor() found it.
  StoredTensor(const ZipReader& archive, TensorDescription description);

  c10::ScalarType dtype() const { return tensor_.dtype; }
  const std::vector<std::int64_t>& sizes() const { return tensor_.sizes; }
  // True if its elements are stored row by row, so that a read of some rows reads no others.
  bool is_row_major() const { return tensor_.strides == row_major_strides(tensor_.sizes); }

  // Copies the box that starts at `start` and has the sizes of `target` into `target` (any dtype, device and strides).
  // Reads only the rows of dim 0 that the box touches; of other strides, the bytes from its first element to its last.
  // If those are the record, verifies the checksum and returns nullopt; otherwise returns what was read, for the
  // caller to verify (the caller sets its `file`).
  std::optional<PartialRead> read_box(const std::vector<std::int64_t>& start, const at::Tensor& target) const;

 private:
  std::optional<PartialRead> read_rows(const std::vector<std::int64_t>& start, const at::Tensor& target) const;
  std::optional<PartialRead> read_strided(const std::vector<std::int64_t>& start, const at::Tensor& target) const;

  const ZipReader& archive_;
  const ZipRecord* payload_ = nullptr;
  TensorDescription tensor_;
};

}  // namespace titan::checkpoint
