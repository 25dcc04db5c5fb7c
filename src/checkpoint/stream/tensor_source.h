// Reads a model as a stream of tensors, a block of rows at a time: one end of a conversion between formats
// (tensor_sink.h is the other). Holds only the requested block in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace titan::checkpoint {

struct TensorInfo {
  std::string name;
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<std::int64_t> shape;

  std::int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  std::int64_t elements_per_row() const;
};

// True if a key of a checkpoint belongs to the model, not to the optimizer or the rest of a run's state.
bool is_model_key(const std::string& fqn);

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  // Renames the model's tensors from the names of TorchTitan's main branch to ours (torchtitan_main.h). Returns true if
  // they had those. `what` names the checkpoint in errors. Throws CheckpointError.
  bool use_own_names(const std::string& what);
  // Returns rows [begin, end) of dim 0, contiguous, on CPU; a tensor without dims has one row, [1].
  virtual at::Tensor read(std::size_t index, std::int64_t begin, std::int64_t end) = 0;
  // True if a read of some rows of the tensor reads no others. If not, read it once, with all rows.
  virtual bool reads_by_rows(std::size_t /*index*/) const { return true; }
  // Call after the last read. Verifies that what was read is what was written, as far as the format has checksums.
  // Throws DamagedCheckpoint.
  virtual void verify() = 0;

 protected:
  std::vector<TensorInfo> tensors_;
};

// Returns `name` without the parts that torch.compile, activation checkpointing, FSDP and DDP insert for their
// wrappers.
std::string without_wrappers(std::string name);

// Open a DCP folder, a Hugging Face folder or *.safetensors file, or a torch.save file. That holds one dict of tensors,
// or a dict with such a dict under "model" or "state_dict", of which nothing else is read. Throw CheckpointError.
std::unique_ptr<TensorSource> open_dcp_source(const std::filesystem::path& folder);
std::unique_ptr<TensorSource> open_safetensors_source(const std::filesystem::path& path);
std::unique_ptr<TensorSource> open_torch_source(const std::filesystem::path& file);

}  // namespace titan::checkpoint
