// The parts of a torch.save archive: how a pickle describes a tensor, and the records around it. See FORMAT.md.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/format/pickle_reader.h"
#include "checkpoint/format/pickle_writer.h"
#include "checkpoint/format/zip_reader.h"
#include "checkpoint/format/zip_writer.h"

namespace titan::checkpoint {

// A tensor as a pickle describes it: a view of the storage in the record data/<storage>.
struct TensorDescription {
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::string storage = "0";
  std::int64_t storage_numel = 0;
  std::int64_t storage_offset = 0;  // elements
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;  // elements
};

// Describes a tensor that fills a storage of its own, row by row.
TensorDescription describe_contiguous(c10::ScalarType dtype, std::vector<std::int64_t> sizes, std::string storage);

std::vector<std::int64_t> row_major_strides(const std::vector<std::int64_t>& sizes);

// Emits the call torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks).
void emit_tensor(PickleWriter& out, const TensorDescription& tensor);

// Returns the pickle of one dict of name -> tensor. Descriptions that name one storage are tensors that share it.
std::string pickle_state_dict(const std::vector<std::pair<std::string, TensorDescription>>& tensors);

// Reads that call, also within torch._utils._rebuild_parameter. Throws CheckpointError for anything else, and for a
// description that contradicts `archive`'s record. The returned description cannot reach outside its storage.
TensorDescription parse_tensor(const PickleTree& tree, NodeId id, const ZipReader& archive);

// Returns the globals that such a pickle may use.
std::span<const std::string_view> tensor_globals();

// Maximum number of records in an archive of many tensors.
inline constexpr std::uint64_t kMaxTorchRecords = 1 << 20;

// Throws CheckpointError for an archive written on a big-endian machine.
void check_byte_order(const ZipReader& archive);

class TorchArchiveWriter {
 public:
  TorchArchiveWriter(OutputFile& out, const std::string& pickle);

  // Begins a storage of `size` bytes; append() then writes it in parts.
  void begin_storage(const std::string& key, std::uint64_t size) { zip_.begin("archive/data/" + key, size); }
  void append(const void* data, std::uint64_t size) { zip_.append(data, size); }
  void end_storage() { zip_.end(); }

  // Returns the length of the archive.
  std::uint64_t finish();

 private:
  ZipWriter zip_;
};

}  // namespace titan::checkpoint
