#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "checkpoint/archive.h"
#include "checkpoint/crc32.h"
#include "checkpoint/dtype.h"
#include "checkpoint/pickle_reader.h"
#include "checkpoint/value_pickle.h"

namespace titan::checkpoint {
namespace {

constexpr std::array<std::string_view, 3> kTensorGlobals = {"torch._utils\n_rebuild_tensor_v2", "torch\n*",
                                                            "collections\nOrderedDict"};
constexpr std::int64_t kBlockBytes = 16 << 20;  // what is read at once when the target cannot take the bytes itself
constexpr std::uint64_t kCrcBlock = 1 << 20;
constexpr std::uint64_t kMaxPickle = 1 << 16;  // of a tensor: some 200 bytes in practice

void check_byte_order(const ZipReader& archive) {
  const ZipRecord* record = archive.find("byteorder");
  if (record == nullptr) return;
  if (record->size > 16 || archive.read(*record) != "little")
    archive.fail("the archive is not in little-endian byte order");
}

std::vector<std::int64_t> row_major_strides(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * std::max<std::int64_t>(sizes[d], 1);
  return strides;
}

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

// The box [start, start + sizes) of the dims from `first_dim` on.
at::Tensor narrow_from(at::Tensor tensor, const std::vector<std::int64_t>& start, at::IntArrayRef sizes,
                       std::size_t first_dim) {
  for (std::size_t d = first_dim; d < start.size(); ++d)
    tensor = tensor.narrow(static_cast<std::int64_t>(d), start[d], sizes[d]);
  return tensor;
}

}  // namespace

Value read_value_archive(const ZipReader& archive) {
  check_byte_order(archive);
  const ZipRecord& record = archive.get("data.pkl");
  const std::uint64_t offset = archive.payload_offset(record);
  return unpickle_value(archive.read(record), archive.what(), offset);
}

StoredTensor::StoredTensor(const ZipReader& archive) : archive_(archive) {
  check_byte_order(archive);
  const ZipRecord& record = archive.get("data.pkl");
  if (record.size > kMaxPickle)
    archive.fail("the description of the tensor is " + std::to_string(record.size) + " bytes long");
  parse(archive.read(record));
}

void StoredTensor::parse(std::string pickle) {
  using Kind = Node::Kind;
  const PickleTree tree = PickleTree::parse(std::move(pickle), archive_.what(),
                                            archive_.payload_offset(archive_.get("data.pkl")), kTensorGlobals);
  const auto expect = [&](bool condition) {
    if (!condition) archive_.fail("the archive does not hold one plain tensor");
  };
  const auto number = [&](NodeId id) {
    expect(tree[id].kind == Kind::kInt && tree[id].integer >= 0);
    return tree[id].integer;
  };
  const auto numbers = [&](NodeId id) {
    expect(tree[id].kind == Kind::kTuple && tree[id].children.size() <= 64);
    std::vector<std::int64_t> result;
    for (const NodeId child : tree[id].children) result.push_back(number(child));
    return result;
  };
  expect(tree.is_object_of(tree.root(), kTensorGlobals[0]));
  const auto& arguments = tree[tree[tree.root()].children[1]].children;
  expect(arguments.size() >= 6 && tree[arguments[0]].kind == Kind::kPersistentId);
  const Node& id = tree[tree[arguments[0]].children[0]];
  expect(id.kind == Kind::kTuple && id.children.size() == 5 && tree[id.children[1]].kind == Kind::kGlobal);
  expect(tree[id.children[2]].kind == Kind::kText);
  std::string_view storage = tree[id.children[1]].text;
  expect(storage.starts_with("torch\n"));
  storage.remove_prefix(6);
  const auto dtype = dtype_from_storage_class(storage);
  if (!dtype) archive_.fail("the storage type torch." + std::string(storage) + " is not supported");
  dtype_ = *dtype;
  storage_numel_ = number(id.children[4]);
  storage_offset_ = number(arguments[1]);
  sizes_ = numbers(arguments[2]);
  strides_ = numbers(arguments[3]);
  expect(sizes_.size() == strides_.size());
  payload_ = &archive_.get("data/" + std::string(tree[id.children[2]].text));

  const auto element = static_cast<std::int64_t>(c10::elementSize(dtype_));
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(storage_numel_, element, &bytes) || static_cast<std::uint64_t>(bytes) != payload_->size)
    archive_.fail("the tensor's storage has " + std::to_string(payload_->size) + " bytes, not " +
                  std::to_string(storage_numel_) + " elements of " + std::to_string(element) + " bytes");
  // The highest element that the strides can reach must be in the storage. Strides of zero reach no further however
  // large the sizes are, so that products of sizes are bounded as well.
  std::int64_t last = storage_offset_;
  std::int64_t total = element;
  bool empty = false;
  bool fits = true;
  for (std::size_t d = 0; d < sizes_.size(); ++d) {
    empty = empty || sizes_[d] == 0;
    std::int64_t span = 0;
    fits = fits && !__builtin_mul_overflow(total, std::max<std::int64_t>(sizes_[d], 1), &total) &&
           !__builtin_mul_overflow(std::max<std::int64_t>(sizes_[d] - 1, 0), strides_[d], &span) &&
           !__builtin_add_overflow(last, span, &last);
  }
  if (!fits || (!empty && last >= storage_numel_))
    archive_.fail("the tensor's sizes and strides reach beyond its storage");
}

void StoredTensor::read_box(const std::vector<std::int64_t>& start, const at::Tensor& target) const {
  TITAN_CHECK(start.size() == sizes_.size() && target.dim() == static_cast<std::int64_t>(sizes_.size()),
              "a box of other dims");
  if (target.numel() == 0) return;
  if (storage_offset_ == 0 && strides_ == row_major_strides(sizes_)) {
    read_rows(start, target);
  } else {
    read_strided(start, target);
  }
}

void StoredTensor::read_rows(const std::vector<std::int64_t>& start, const at::Tensor& target) const {
  const auto element = static_cast<std::int64_t>(c10::elementSize(dtype_));
  std::vector<std::int64_t> shape = sizes_.empty() ? std::vector<std::int64_t>{1} : sizes_;
  const std::vector<std::int64_t> box_start = sizes_.empty() ? std::vector<std::int64_t>{0} : start;
  const at::Tensor box = sizes_.empty() ? target.unsqueeze(0) : target;
  std::int64_t row_bytes = element;
  bool whole_rows = true;
  for (std::size_t d = 1; d < shape.size(); ++d) {
    row_bytes *= shape[d];
    whole_rows = whole_rows && box.size(static_cast<std::int64_t>(d)) == shape[d];
  }
  const std::int64_t num_rows = box.size(0);
  const std::uint64_t first = archive_.payload_offset(*payload_) + static_cast<std::uint64_t>(box_start[0] * row_bytes);
  const bool all_rows = num_rows * row_bytes == static_cast<std::int64_t>(payload_->size);
  std::uint32_t crc = 0;
  if (whole_rows && box.device().is_cpu() && box.scalar_type() == dtype_ && box.is_contiguous()) {
    crc = read_with_crc(archive_.file(), first, box.data_ptr(), static_cast<std::uint64_t>(num_rows * row_bytes), crc);
  } else {
    const std::int64_t block_rows =
        std::clamp<std::int64_t>(kBlockBytes / std::max<std::int64_t>(row_bytes, 1), 1, num_rows);
    shape[0] = block_rows;
    const at::Tensor block = at::empty(shape, at::TensorOptions(dtype_));
    for (std::int64_t row = 0; row < num_rows; row += block_rows) {
      const std::int64_t count = std::min(block_rows, num_rows - row);
      crc = read_with_crc(archive_.file(), first + static_cast<std::uint64_t>(row * row_bytes), block.data_ptr(),
                          static_cast<std::uint64_t>(count * row_bytes), crc);
      box.narrow(0, row, count).copy_(narrow_from(block.narrow(0, 0, count), box_start, box.sizes(), 1));
    }
  }
  if (all_rows) archive_.check_crc(*payload_, crc);
}

// Some other program kept a transposed or shared storage: read it all.
void StoredTensor::read_strided(const std::vector<std::int64_t>& start, const at::Tensor& target) const {
  const at::Tensor storage = at::empty({storage_numel_}, at::TensorOptions(dtype_));
  const std::uint32_t crc =
      read_with_crc(archive_.file(), archive_.payload_offset(*payload_), storage.data_ptr(), payload_->size, 0);
  archive_.check_crc(*payload_, crc);
  target.copy_(narrow_from(storage.as_strided(sizes_, strides_, storage_offset_), start, target.sizes(), 0));
}

}  // namespace titan::checkpoint
