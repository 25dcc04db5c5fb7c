#include <ATen/ATen.h>

#include "checkpoint/format/archive.h"
#include "checkpoint/format/torch_archive.h"
#include "checkpoint/format/value_pickle.h"

namespace titan::checkpoint {

TensorArchiveWriter::TensorArchiveWriter(OutputFile& out, c10::ScalarType dtype, std::vector<std::int64_t> sizes)
    : TensorArchiveWriter(out, describe_contiguous(dtype, std::move(sizes), "0")) {}

TensorArchiveWriter::TensorArchiveWriter(OutputFile& out, const TensorDescription& tensor)
    : archive_(out, pickle_of(tensor)) {
  archive_.begin_storage(tensor.storage,
                         static_cast<std::uint64_t>(tensor.storage_numel) * c10::elementSize(tensor.dtype));
}

std::string TensorArchiveWriter::pickle_of(const TensorDescription& tensor) {
  PickleWriter pickle(2);
  emit_tensor(pickle, tensor);
  return pickle.finish();
}

std::uint64_t TensorArchiveWriter::finish() {
  archive_.end_storage();
  return archive_.finish();
}

std::uint64_t write_tensor_archive(OutputFile& out, const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().to(at::kCPU).contiguous();
  TensorArchiveWriter archive(out, host.scalar_type(), host.sizes().vec());
  archive.append(host.const_data_ptr(), host.nbytes());
  return archive.finish();
}

std::uint64_t write_value_archive(OutputFile& out, const Value& value) {
  return TorchArchiveWriter(out, pickle_value(value, 2)).finish();
}

}  // namespace titan::checkpoint
