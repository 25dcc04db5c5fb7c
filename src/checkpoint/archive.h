// One item of a checkpoint: a complete torch.save archive with a tensor or a value in it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/file.h"
#include "checkpoint/value.h"
#include "checkpoint/zip_reader.h"

namespace titan::checkpoint {

// Both append one archive to `out` and give its length in bytes. A CUDA or non-contiguous tensor is copied first.
std::uint64_t write_tensor_archive(OutputFile& out, const at::Tensor& tensor);
std::uint64_t write_value_archive(OutputFile& out, const Value& value);

Value read_value_archive(const ZipReader& archive);

// A tensor in an archive, its description checked, its numbers still on the disk.
class StoredTensor {
 public:
  // `archive` must outlive this. Throws CheckpointError for anything but one plain tensor.
  explicit StoredTensor(const ZipReader& archive);

  c10::ScalarType dtype() const { return dtype_; }
  const std::vector<std::int64_t>& sizes() const { return sizes_; }

  // Copies the box that starts at `start` and has the sizes of `target` into `target` (any dtype, device and strides).
  // Reads only the rows of dim 0 that the box touches; the checksum is verified when those are all rows.
  void read_box(const std::vector<std::int64_t>& start, const at::Tensor& target) const;

 private:
  void parse(std::string pickle);
  void read_rows(const std::vector<std::int64_t>& start, const at::Tensor& target) const;
  void read_strided(const std::vector<std::int64_t>& start, const at::Tensor& target) const;

  const ZipReader& archive_;
  const ZipRecord* payload_ = nullptr;
  c10::ScalarType dtype_ = c10::ScalarType::Float;
  std::int64_t storage_numel_ = 0;
  std::int64_t storage_offset_ = 0;
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> strides_;
};

}  // namespace titan::checkpoint
