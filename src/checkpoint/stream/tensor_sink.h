// Writes a model as a stream of tensors, a block of rows at a time, in any format.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "checkpoint/hugging_face/hugging_face_files.h"
#include "checkpoint/stream/tensor_source.h"

namespace titan::checkpoint {

// Takes its tensors in order, each from the first row to the last. Writes under a temporary name; without finish() the
// target is unchanged.
class TensorSink {
 public:
  virtual ~TensorSink() = default;
  virtual void begin(const TensorInfo& tensor) = 0;
  // Appends the next rows, in the tensor's dtype, on CPU.
  virtual void append(const at::Tensor& rows) = 0;
  virtual void end() = 0;
  // Puts everything on disk and in place. Returns the bytes of all files.
  virtual std::uint64_t finish() = 0;
};

// finish() replaces an existing target.
std::unique_ptr<TensorSink> make_dcp_sink(const std::filesystem::path& folder, std::vector<TensorInfo> tensors,
                                          SmallFiles small_files = {});
std::unique_ptr<TensorSink> make_safetensors_sink(const std::filesystem::path& folder, std::vector<TensorInfo> tensors,
                                                  SmallFiles small_files, std::uint64_t file_bytes = 5'000'000'000);
std::unique_ptr<TensorSink> make_torch_sink(const std::filesystem::path& file, std::vector<TensorInfo> tensors);

}  // namespace titan::checkpoint
