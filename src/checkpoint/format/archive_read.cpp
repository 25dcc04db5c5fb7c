#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"
#include "checkpoint/format/archive.h"
#include "checkpoint/format/torch_archive.h"
#include "checkpoint/format/value_pickle.h"
#include "checkpoint/io/crc32.h"

namespace titan::checkpoint {
namespace {

constexpr std::int64_t kBlockBytes = 16 << 20;  // read at once if the target cannot receive the bytes directly
constexpr std::uint64_t kCrcBlock = 1 << 20;
constexpr std::uint64_t kMaxPickle = 1 << 16;  // for a tensor; about 200 bytes in practice

// Reads into memory and checksums block by block, while the bytes are in cache.
std::uint32_t read_with_crc(const InputFile& file, std::uint64_t offset, void* data, std::uint64_t size,
                            std::uint32_t crc) {
  auto* bytes = static_cast<char*>(data);
  for (std::uint64_t done = 0; done < size; done += kCrcBlock) {
    const std::uint64_t count = std::min(kCrcBlock, size - done);
    file.read(offset + done, bytes + done, count);
    crc = crc32(crc, bytes + done, count);
  }
  return crc;
}

// Returns the box [start, start + sizes) of the dims from `first_dim` on.
at::Tensor narrow_from(at::Tensor tensor, const std::vector<std::int64_t>& start, at::IntArrayRef sizes,
                       std::size_t first_dim) {
  for (std::size_t d = first_dim; d < start.size(); ++d)
    tensor = tensor.narrow(static_cast<std::int64_t>(d), start[d], sizes[d]);
  return tensor;
}

TensorDescription describe_only_tensor(const ZipReader& archive) {
  check_byte_order(archive);
  const ZipRecord& record = archive.get("data.pkl");
  if (record.size > kMaxPickle)
    archive.fail("the description of the tensor is " + std::to_string(record.size) + " bytes long");
  const PickleTree tree =
      PickleTree::parse(archive.read(record), archive.what(), archive.payload_offset(record), tensor_globals());
  return parse_tensor(tree, tree.root(), archive);
}

}  // namespace

Value read_value_archive(const ZipReader& archive) {
  check_byte_order(archive);
  const ZipRecord& record = archive.get("data.pkl");
  const std::uint64_t offset = archive.payload_offset(record);
  return unpickle_value(archive.read(record), archive.what(), offset);
}

StoredTensor::StoredTensor(const ZipReader& archive) : StoredTensor(archive, describe_only_tensor(archive)) {}

StoredTensor::StoredTensor(const ZipReader& archive, TensorDescription description)
    : archive_(archive), payload_(&archive.get("data/" + description.storage)), tensor_(std::move(description)) {}

std::optional<PartialRead> StoredTensor::read_box(const std::vector<std::int64_t>& start,
                                                  const at::Tensor& target) const {
  TITAN_CHECK(start.size() == tensor_.sizes.size() && target.dim() == static_cast<std::int64_t>(tensor_.sizes.size()),
              "a box of other dims");
  if (target.numel() == 0) return std::nullopt;
  return is_row_major() ? read_rows(start, target) : read_strided(start, target);
}

std::optional<PartialRead> StoredTensor::read_rows(const std::vector<std::int64_t>& start,
                                                   const at::Tensor& target) const {
  const auto element = static_cast<std::int64_t>(c10::elementSize(tensor_.dtype));
  std::vector<std::int64_t> shape = tensor_.sizes.empty() ? std::vector<std::int64_t>{1} : tensor_.sizes;
  const std::vector<std::int64_t> box_start = tensor_.sizes.empty() ? std::vector<std::int64_t>{0} : start;
  const at::Tensor box = tensor_.sizes.empty() ? target.unsqueeze(0) : target;
  std::int64_t row_bytes = element;
  bool whole_rows = true;
  for (std::size_t d = 1; d < shape.size(); ++d) {
    row_bytes *= shape[d];
    whole_rows = whole_rows && box.size(static_cast<std::int64_t>(d)) == shape[d];
  }
  const std::int64_t num_rows = box.size(0);
  const std::uint64_t payload = archive_.payload_offset(*payload_);
  const auto begin = static_cast<std::uint64_t>(
      box_start[0] * row_bytes + tensor_.storage_offset * static_cast<std::int64_t>(c10::elementSize(tensor_.dtype)));
  const std::uint64_t first = payload + begin;
  const auto size = static_cast<std::uint64_t>(num_rows * row_bytes);
  std::uint32_t crc = 0;
  if (whole_rows && box.device().is_cpu() && box.scalar_type() == tensor_.dtype && box.is_contiguous()) {
    crc = read_with_crc(archive_.file(), first, box.data_ptr(), size, crc);
  } else {
    const std::int64_t block_rows =
        std::clamp<std::int64_t>(kBlockBytes / std::max<std::int64_t>(row_bytes, 1), 1, num_rows);
    shape[0] = block_rows;
    const at::Tensor block = at::empty(shape, at::TensorOptions(tensor_.dtype));
    for (std::int64_t row = 0; row < num_rows; row += block_rows) {
      const std::int64_t count = std::min(block_rows, num_rows - row);
      crc = read_with_crc(archive_.file(), first + static_cast<std::uint64_t>(row * row_bytes), block.data_ptr(),
                          static_cast<std::uint64_t>(count * row_bytes), crc);
      box.narrow(0, row, count).copy_(narrow_from(block.narrow(0, 0, count), box_start, box.sizes(), 1));
    }
  }
  if (size < payload_->size)
    return PartialRead{"", archive_.name(), payload, payload_->size, payload_->crc, {begin, size, crc}};
  archive_.check_crc(*payload_, crc);
  return std::nullopt;
}

// Reads the part of the storage that the box reaches over: another program stored a transposed tensor.
std::optional<PartialRead> StoredTensor::read_strided(const std::vector<std::int64_t>& start,
                                                      const at::Tensor& target) const {
  std::int64_t first = tensor_.storage_offset, last = tensor_.storage_offset;
  for (std::size_t d = 0; d < start.size(); ++d) {
    first += start[d] * tensor_.strides[d];
    last += (start[d] + target.size(static_cast<std::int64_t>(d)) - 1) * tensor_.strides[d];
  }
  const at::Tensor reach = at::empty({last - first + 1}, at::TensorOptions(tensor_.dtype));
  const std::uint64_t payload = archive_.payload_offset(*payload_);
  const std::uint64_t begin = static_cast<std::uint64_t>(first) * c10::elementSize(tensor_.dtype);
  const std::uint64_t size = reach.nbytes();
  const std::uint32_t crc = read_with_crc(archive_.file(), payload + begin, reach.data_ptr(), size, 0);
  target.copy_(reach.as_strided(target.sizes(), tensor_.strides, 0));
  if (size < payload_->size)
    return PartialRead{"", archive_.name(), payload, payload_->size, payload_->crc, {begin, size, crc}};
  archive_.check_crc(*payload_, crc);
  return std::nullopt;
}

}  // namespace titan::checkpoint
