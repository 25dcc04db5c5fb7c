// A model written as a stream of tensors, a block of rows at a time, in any format.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "checkpoint/hugging_face/hugging_face_files.h"
#include "checkpoint/tools/tensor_source.h"

namespace titan::checkpoint {

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
std::unique_ptr<TensorSink> make_dcp_sink(const std::filesystem::path& folder, std::vector<TensorInfo> tensors,
                                          SmallFiles small_files = {});
std::unique_ptr<TensorSink> make_safetensors_sink(const std::filesystem::path& folder, std::vector<TensorInfo> tensors,
                                                  SmallFiles small_files, std::uint64_t file_bytes = 5'000'000'000);
std::unique_ptr<TensorSink> make_torch_sink(const std::filesystem::path& file, std::vector<TensorInfo> tensors);

}  // namespace titan::checkpoint
