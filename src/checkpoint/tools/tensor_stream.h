// Models as streams of tensors, a block of rows at a time: what conversion between formats is made of. Nothing here
// holds more than the block that it is asked for.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/hugging_face/hugging_face_files.h"

namespace titan::checkpoint {

struct TensorInfo {
  std::string name;
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<std::int64_t> shape;

  std::int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  std::int64_t elements_per_row() const;
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  // Rows [begin, end) of dim 0, on CPU, row by row; a tensor without dims has one row, [1].
  virtual at::Tensor read(std::size_t index, std::int64_t begin, std::int64_t end) = 0;
  // After the last read: what was read is what was written, as far as the format has checksums. Throws
  // DamagedCheckpoint.
  virtual void verify() = 0;

 protected:
  std::vector<TensorInfo> tensors_;
};

// A DCP folder, a Hugging Face folder or *.safetensors file, a file of torch.save that holds a dict of tensors. Throw
// CheckpointError.
std::unique_ptr<TensorSource> open_dcp_source(const std::filesystem::path& folder);
std::unique_ptr<TensorSource> open_safetensors_source(const std::filesystem::path& path);
std::unique_ptr<TensorSource> open_torch_source(const std::filesystem::path& file);

// Takes the tensors that it was made for in their order, each from the first row to the last. Writes under a temporary
// name; without finish() the target is as it was.
class TensorSink {
 public:
  virtual ~TensorSink() = default;
  virtual void begin(const TensorInfo& tensor) = 0;
  // Rows of the tensor's dtype, on CPU, row by row.
  virtual void append(const at::Tensor& rows) = 0;
  virtual void end() = 0;
  // Everything is on the disk and in place when it returns. Gives the bytes of all files.
  virtual std::uint64_t finish() = 0;
};

// An existing target is replaced by finish().
std::unique_ptr<TensorSink> make_dcp_sink(const std::filesystem::path& folder, std::vector<TensorInfo> tensors);
std::unique_ptr<TensorSink> make_safetensors_sink(const std::filesystem::path& folder, std::vector<TensorInfo> tensors,
                                                  SmallFiles small_files, std::uint64_t file_bytes = 5'000'000'000);
std::unique_ptr<TensorSink> make_torch_sink(const std::filesystem::path& file, std::vector<TensorInfo> tensors);

}  // namespace titan::checkpoint
