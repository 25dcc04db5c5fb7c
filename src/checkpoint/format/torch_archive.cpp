#include "checkpoint/format/torch_archive.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/error.h"
#include "checkpoint/format/dtype.h"

namespace titan::checkpoint {
namespace {

constexpr std::string_view kRebuildTensor = "torch._utils\n_rebuild_tensor_v2";
constexpr std::string_view kRebuildParameter = "torch._utils\n_rebuild_parameter";
constexpr std::array<std::string_view, 4> kTensorGlobals = {kRebuildTensor, kRebuildParameter, "torch\n*",
                                                            "collections\nOrderedDict"};

void number_tuple(PickleWriter& out, const std::vector<std::int64_t>& numbers) {
  if (numbers.empty()) {
    out.empty_tuple();
    return;
  }
  out.mark();
  for (const std::int64_t number : numbers) out.integer(number);
  out.tuple_from_mark();
}

// Throws if the strides reach beyond the storage, or if the storage does not match the record. Strides of zero reach no
// further for any size, so the product of the sizes is bounded separately.
void check_extent(const TensorDescription& tensor, const ZipReader& archive) {
  const ZipRecord& payload = archive.get("data/" + tensor.storage);
  const auto element = static_cast<std::int64_t>(c10::elementSize(tensor.dtype));
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(tensor.storage_numel, element, &bytes) ||
      static_cast<std::uint64_t>(bytes) != payload.size)
    archive.fail("the tensor's storage has " + std::to_string(payload.size) + " bytes, not " +
                 std::to_string(tensor.storage_numel) + " elements of " + std::to_string(element) + " bytes");
  std::int64_t last = tensor.storage_offset;
  std::int64_t total = element;
  bool empty = false;
  bool fits = true;
  for (std::size_t d = 0; d < tensor.sizes.size(); ++d) {
    empty = empty || tensor.sizes[d] == 0;
    std::int64_t span = 0;
    fits = fits && !__builtin_mul_overflow(total, std::max<std::int64_t>(tensor.sizes[d], 1), &total) &&
           !__builtin_mul_overflow(std::max<std::int64_t>(tensor.sizes[d] - 1, 0), tensor.strides[d], &span) &&
           !__builtin_add_overflow(last, span, &last);
  }
  if (!fits || (!empty && last >= tensor.storage_numel))
    archive.fail("the tensor's sizes and strides reach beyond its storage");
}

}  // namespace

std::span<const std::string_view> tensor_globals() { return kTensorGlobals; }

std::vector<std::int64_t> row_major_strides(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * std::max<std::int64_t>(sizes[d], 1);
  return strides;
}

TensorDescription describe_contiguous(c10::ScalarType dtype, std::vector<std::int64_t> sizes, std::string storage) {
  TensorDescription tensor;
  tensor.dtype = dtype;
  tensor.storage = std::move(storage);
  tensor.storage_numel = 1;
  for (const std::int64_t size : sizes) tensor.storage_numel *= size;
  tensor.strides = row_major_strides(sizes);
  tensor.sizes = std::move(sizes);
  return tensor;
}

void emit_tensor(PickleWriter& out, const TensorDescription& tensor) {
  out.global("torch._utils", "_rebuild_tensor_v2");
  out.mark();
  out.mark();
  out.text("storage");
  out.global("torch", storage_class(tensor.dtype));
  out.text(tensor.storage);
  out.text("cpu");
  out.integer(tensor.storage_numel);
  out.tuple_from_mark();
  out.persistent_id();
  out.integer(tensor.storage_offset);
  number_tuple(out, tensor.sizes);
  number_tuple(out, tensor.strides);
  out.boolean(false);
  out.global("collections", "OrderedDict");
  out.empty_tuple();
  out.reduce();
  out.tuple_from_mark();
  out.reduce();
}

std::string pickle_state_dict(const std::vector<std::pair<std::string, TensorDescription>>& tensors) {
  PickleWriter pickle(2);
  pickle.empty_dict();
  pickle.mark();
  for (const auto& [name, tensor] : tensors) {
    pickle.text(name);
    emit_tensor(pickle, tensor);
  }
  pickle.set_from_mark();
  return pickle.finish();
}

TensorDescription parse_tensor(const PickleTree& tree, NodeId id, const ZipReader& archive) {
  using Kind = Node::Kind;
  const auto expect = [&](bool condition) {
    if (!condition) archive.fail("the archive holds something else where a plain tensor is expected");
  };
  const auto number = [&](NodeId node) {
    expect(tree[node].kind == Kind::kInt && tree[node].integer >= 0);
    return tree[node].integer;
  };
  const auto numbers = [&](NodeId node) {
    expect(tree[node].kind == Kind::kTuple && tree[node].children.size() <= 64);
    std::vector<std::int64_t> result;
    for (const NodeId child : tree[node].children) result.push_back(number(child));
    return result;
  };
  if (tree.is_object_of(id, kRebuildParameter)) {
    const auto& arguments = tree[tree[id].children[1]].children;
    expect(!arguments.empty());
    id = arguments[0];
  }
  expect(tree.is_object_of(id, kRebuildTensor));
  const auto& arguments = tree[tree[id].children[1]].children;
  expect(arguments.size() >= 6 && tree[arguments[0]].kind == Kind::kPersistentId);
  const Node& storage_id = tree[tree[arguments[0]].children[0]];
  expect(storage_id.kind == Kind::kTuple && storage_id.children.size() == 5 &&
         tree[storage_id.children[1]].kind == Kind::kGlobal);
  expect(tree[storage_id.children[2]].kind == Kind::kText);
  std::string_view storage = tree[storage_id.children[1]].text;
  expect(storage.starts_with("torch\n"));
  storage.remove_prefix(6);
  const auto dtype = dtype_from_storage_class(storage);
  if (!dtype) archive.fail("the storage type torch." + std::string(storage) + " is not supported");
  TensorDescription tensor;
  tensor.dtype = *dtype;
  tensor.storage = std::string(tree[storage_id.children[2]].text);
  tensor.storage_numel = number(storage_id.children[4]);
  tensor.storage_offset = number(arguments[1]);
  tensor.sizes = numbers(arguments[2]);
  tensor.strides = numbers(arguments[3]);
  expect(tensor.sizes.size() == tensor.strides.size());
  check_extent(tensor, archive);
  return tensor;
}

void check_byte_order(const ZipReader& archive) {
  const ZipRecord* record = archive.find("byteorder");
  if (record == nullptr) return;
  if (record->size > 16 || archive.read(*record) != "little")
    archive.fail("the archive is not in little-endian byte order");
}

TorchArchiveWriter::TorchArchiveWriter(OutputFile& out, const std::string& pickle) : zip_(out) {
  zip_.add("archive/data.pkl", pickle);
  zip_.add("archive/.format_version", "1");
  zip_.add("archive/.storage_alignment", "64");
  zip_.add("archive/byteorder", "little");
}

std::uint64_t TorchArchiveWriter::finish() {
  zip_.add("archive/version", "3\n");
  // Id of 40 digits, made from the checksums of the content.
  std::array<char, 41> id{};
  std::snprintf(id.data(), id.size(), "%040u", zip_.combined_crc());
  zip_.add("archive/.data/serialization_id", std::string_view(id.data(), 40));
  return zip_.finish();
}

}  // namespace titan::checkpoint
