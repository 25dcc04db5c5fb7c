#include <spdlog/spdlog.h>

#include <array>
#include <limits>

#include "base/error.h"
#include "base/log.h"
#include "base/run_layout.h"
#include "checkpoint/dcp/metadata.h"
#include "checkpoint/format/dtype.h"
#include "checkpoint/format/pickle_reader.h"
#include "checkpoint/io/read_error.h"

namespace titan::checkpoint {
namespace {

constexpr std::string_view kMetadata = "torch.distributed.checkpoint.metadata\nMetadata";
constexpr std::string_view kTensorStorage = "torch.distributed.checkpoint.metadata\nTensorStorageMetadata";
constexpr std::string_view kBytesStorage = "torch.distributed.checkpoint.metadata\nBytesStorageMetadata";
constexpr std::string_view kProperties = "torch.distributed.checkpoint.metadata\nTensorProperties";
constexpr std::string_view kChunk = "torch.distributed.checkpoint.metadata\nChunkStorageMetadata";
constexpr std::string_view kIndex = "torch.distributed.checkpoint.metadata\nMetadataIndex";
constexpr std::string_view kStorageInfo = "torch.distributed.checkpoint.filesystem\n_StorageInfo";

// Everything under "torch\n" is a dtype or torch.Size; only names are recorded. pathlib's module varies with Python.
constexpr std::array<std::string_view, 13> kGlobals = {
    kMetadata,
    kTensorStorage,
    kBytesStorage,
    kProperties,
    kChunk,
    kIndex,
    kStorageInfo,
    "torch.distributed.checkpoint.metadata\nStorageMeta",
    "torch.distributed.checkpoint.metadata\n_MEM_FORMAT_ENCODING",
    "torch.serialization\n_get_layout",
    "collections\nOrderedDict",
    "torch\n*",
    "pathlib*",
};

constexpr std::size_t kMaxDims = 64;

// Decoding takes about as many steps as the file has bytes.
constexpr std::uint64_t kStepsForEachByte = 64;
constexpr std::uint64_t kFreeSteps = 1 << 20;
constexpr std::uint64_t kChunkSteps = 16;  // rough memory size of one chunk

class Decoder {
 public:
  explicit Decoder(const PickleTree& tree)
      : tree_(tree), steps_left_(kFreeSteps + kStepsForEachByte * tree.num_bytes()) {}

  Metadata decode() {
    if (!tree_.is_object_of(tree_.root(), kMetadata))
      tree_.fail("the file does not hold a torch.distributed.checkpoint Metadata");
    check_version();
    const NodeId keys = field(tree_.root(), "state_dict_metadata");
    for_each_item(keys, "state_dict_metadata", [&](NodeId key, NodeId value) { entry(text(key, "a key"), value); });
    if (const auto planner = optional_field(tree_.root(), "planner_data");
        planner && kind(*planner) == Node::Kind::kDict)
      for_each_item(*planner, "planner_data", [&](NodeId key, NodeId value) { path(text(key, "a key"), value); });
    for_each_item(field(tree_.root(), "storage_data"), "storage_data",
                  [&](NodeId key, NodeId value) { storage(key, value); });
    save_id();
    check_complete();
    return std::move(metadata_);
  }

 private:
  Node::Kind kind(NodeId id) const { return tree_[id].kind; }

  // Counts work. Shared parts of the file are read and copied at each use; a file crafted to grow without end this way
  // runs out of steps.
  void spend(std::uint64_t steps) const {
    if (steps > steps_left_) tree_.fail("the file refers to its own parts too often");
    steps_left_ -= steps;
  }

  template <typename Visit>
  void for_each_item(NodeId id, const char* what, const Visit& visit) const {
    const Node& dict = tree_[id];
    if (dict.kind != Node::Kind::kDict) tree_.fail(std::string(what) + " is not a dict");
    for (std::size_t i = 0; i + 1 < dict.children.size(); i += 2) {
      spend(1);
      visit(dict.children[i], dict.children[i + 1]);
    }
  }

  std::string text(NodeId id, const char* what) const {
    if (kind(id) != Node::Kind::kText) tree_.fail(std::string(what) + " is not a string");
    spend(tree_[id].text.size());
    return std::string(tree_[id].text);
  }

  std::int64_t natural(NodeId id, const char* what) const {
    if (kind(id) != Node::Kind::kInt || tree_[id].integer < 0)
      tree_.fail(std::string(what) + " is not a natural number");
    return tree_[id].integer;
  }

  // Returns the value of a field in the state of an object, or nullopt if it is missing.
  std::optional<NodeId> optional_field(NodeId object, std::string_view name) const {
    const Node& node = tree_[object];
    if (!node.built || kind(node.children[2]) != Node::Kind::kDict) tree_.fail("an object has no fields");
    const Node& state = tree_[node.children[2]];
    for (std::size_t i = 0; i + 1 < state.children.size(); i += 2) {
      spend(1);
      const Node& key = tree_[state.children[i]];
      if (key.kind == Node::Kind::kText && key.text == name) return state.children[i + 1];
    }
    return std::nullopt;
  }
  NodeId field(NodeId object, std::string_view name) const {
    if (const auto found = optional_field(object, name)) return *found;
    tree_.fail("the field " + std::string(name) + " is missing");
  }

  std::vector<std::int64_t> torch_size(NodeId id, const char* what) const {
    if (!tree_.is_object_of(id, "torch\nSize")) tree_.fail(std::string(what) + " is not a torch.Size");
    const Node& arguments = tree_[tree_[id].children[1]];
    if (arguments.children.size() != 1 || kind(arguments.children[0]) != Node::Kind::kTuple)
      tree_.fail(std::string(what) + " is not a torch.Size of a tuple");
    std::vector<std::int64_t> size;
    const Node& dims = tree_[arguments.children[0]];
    if (dims.children.size() > kMaxDims)
      tree_.fail(std::string(what) + " has more than " + std::to_string(kMaxDims) + " dims");
    spend(dims.children.size());
    for (const NodeId dim : dims.children) size.push_back(natural(dim, what));
    return size;
  }

  c10::ScalarType dtype(NodeId properties) const {
    if (!tree_.is_object_of(properties, kProperties) || !tree_[properties].built)
      tree_.fail("a tensor has no TensorProperties");
    const Node& state = tree_[tree_[properties].children[2]];
    if (state.kind != Node::Kind::kTuple || state.children.empty() || kind(state.children[0]) != Node::Kind::kGlobal)
      tree_.fail("TensorProperties are not a tuple that starts with a dtype");
    std::string_view name = tree_[state.children[0]].text;
    if (name.starts_with("torch\n")) name.remove_prefix(6);
    if (const auto found = dtype_from_name(name)) return *found;
    tree_.fail("the dtype " + std::string(name) + " is not supported");
  }

  void entry(const std::string& fqn, NodeId value) {
    if (tree_.is_object_of(value, kBytesStorage)) {
      add(fqn, ValueEntry{});
      return;
    }
    if (!tree_.is_object_of(value, kTensorStorage)) tree_.fail(fqn + " is neither a tensor nor a bytes entry");
    TensorEntry tensor;
    tensor.dtype = dtype(field(value, "properties"));
    tensor.size = torch_size(field(value, "size"), "size");
    check_size(fqn, tensor);
    const NodeId chunks = field(value, "chunks");
    if (kind(chunks) != Node::Kind::kList) tree_.fail("the chunks of " + fqn + " are not a list");
    for (const NodeId id : tree_[chunks].children) {
      spend(kChunkSteps);
      if (!tree_.is_object_of(id, kChunk)) tree_.fail("a chunk of " + fqn + " is not a ChunkStorageMetadata");
      StoredChunk chunk{torch_size(field(id, "offsets"), "offsets"), torch_size(field(id, "sizes"), "sizes"), {}};
      check_chunk(fqn, tensor, chunk);
      tensor.chunks.push_back(std::move(chunk));
    }
    add(fqn, std::move(tensor));
  }

  void add(const std::string& fqn, Metadata::Entry value) {
    if (!metadata_.entries.emplace(fqn, std::move(value)).second) tree_.fail("the key " + fqn + " is listed twice");
    metadata_.order.push_back(fqn);
  }

  // Throws for a tensor so large that later products of dims and element size would not fit 64 bits.
  void check_size(const std::string& fqn, const TensorEntry& tensor) const {
    std::int64_t total = static_cast<std::int64_t>(c10::elementSize(tensor.dtype));
    for (const std::int64_t dim : tensor.size) {
      if (__builtin_mul_overflow(total, std::max<std::int64_t>(dim, 1), &total))
        tree_.fail(fqn + " is larger than 2^63 bytes");
    }
  }

  void check_chunk(const std::string& fqn, const TensorEntry& tensor, const StoredChunk& chunk) const {
    bool inside = chunk.offsets.size() == tensor.size.size() && chunk.sizes.size() == tensor.size.size();
    for (std::size_t d = 0; inside && d < tensor.size.size(); ++d)
      inside = chunk.offsets[d] <= tensor.size[d] && chunk.sizes[d] <= tensor.size[d] - chunk.offsets[d];
    if (!inside) tree_.fail("a chunk of " + fqn + " lies outside the tensor");
  }

  void path(const std::string& fqn, NodeId value) {
    if (kind(value) != Node::Kind::kTuple) return;
    StatePath steps;
    for (const NodeId step : tree_[value].children) {
      spend(1);
      if (kind(step) == Node::Kind::kText) {
        steps.emplace_back(text(step, "a part of a path"));
      } else if (kind(step) == Node::Kind::kInt) {
        steps.emplace_back(tree_[step].integer);
      } else {
        return;
      }
    }
    metadata_.paths[fqn] = std::move(steps);
  }

  StorageLocation location(const std::string& fqn, NodeId info) const {
    if (!tree_.is_object_of(info, kStorageInfo)) tree_.fail("the location of " + fqn + " is not a _StorageInfo");
    const auto transforms = optional_field(info, "transform_descriptors");
    if (transforms && kind(*transforms) != Node::Kind::kNone && !tree_[*transforms].children.empty())
      tree_.fail(fqn +
                 " was written through a stream extension (compression or encryption); save it without extensions");
    StorageLocation result;
    result.relative_path = text(field(info, "relative_path"), "relative_path");
    const std::filesystem::path file(result.relative_path);
    bool inside = !file.empty() && file.is_relative() && result.relative_path.find('\0') == std::string::npos;
    for (const auto& part : file) inside = inside && part != "..";
    if (!inside)
      tree_.fail("the file of " + fqn + " ('" + result.relative_path + "') is outside the checkpoint folder");
    result.offset = static_cast<std::uint64_t>(natural(field(info, "offset"), "offset"));
    result.length = static_cast<std::uint64_t>(natural(field(info, "length"), "length"));
    return result;
  }

  // The index of a MetadataIndex is only a hint; (fqn, offset) identifies the chunk.
  void storage(NodeId key, NodeId info) {
    if (!tree_.is_object_of(key, kIndex)) tree_.fail("a key of storage_data is not a MetadataIndex");
    const std::string fqn = text(field(key, "fqn"), "fqn");
    const auto found = metadata_.entries.find(fqn);
    if (found == metadata_.entries.end()) tree_.fail("storage_data names " + fqn + ", which state_dict_metadata lacks");
    const StorageLocation where = location(fqn, info);
    if (auto* value = std::get_if<ValueEntry>(&found->second)) {
      value->location = where;
      return;
    }
    auto& chunks = std::get<TensorEntry>(found->second).chunks;
    const auto offset = torch_size(field(key, "offset"), "offset");
    const auto hint = optional_field(key, "index");
    if (hint && kind(*hint) == Node::Kind::kInt) {
      const auto index = static_cast<std::size_t>(tree_[*hint].integer);
      if (index < chunks.size() && chunks[index].offsets == offset) {
        chunks[index].location = where;
        return;
      }
    }
    for (StoredChunk& chunk : chunks) {
      spend(1);
      if (chunk.offsets == offset) {
        chunk.location = where;
        return;
      }
    }
    tree_.fail("storage_data has an offset of " + fqn + " that is not a chunk's");
  }

  // Rejects later formats, which may mean something else. Older PyTorch writes no version.
  void check_version() const {
    const auto version = optional_field(tree_.root(), "version");
    if (!version || kind(*version) != Node::Kind::kText || tree_[*version].text.starts_with("1.")) return;
    tree_.fail("it has format version " + std::string(tree_[*version].text) +
               ", and versions 1.x are read here; load it with the program that wrote it, or with a newer titan-train");
  }

  void save_id() {
    const auto meta = optional_field(tree_.root(), "storage_meta");
    if (!meta || !tree_.is_object_of(*meta, "torch.distributed.checkpoint.metadata\nStorageMeta")) return;
    const auto id = optional_field(*meta, "save_id");
    if (id && kind(*id) == Node::Kind::kText) metadata_.save_id = std::string(tree_[*id].text);
  }

  void check_complete() const {
    for (const auto& [fqn, entry] : metadata_.entries) {
      const auto* tensor = std::get_if<TensorEntry>(&entry);
      if (tensor == nullptr) {
        if (std::get<ValueEntry>(entry).location.length == 0) tree_.fail(fqn + " has no storage location");
        continue;
      }
      for (const StoredChunk& chunk : tensor->chunks)
        if (chunk.location.length == 0) tree_.fail("a chunk of " + fqn + " has no storage location");
    }
  }

  const PickleTree& tree_;
  mutable std::uint64_t steps_left_;
  Metadata metadata_;
};

// True if `a` and `b` are different UUIDs, not one with a few damaged digits. Random ones agree in about 2 of 32
// digits.
bool is_other_save(const std::string& a, const std::string& b) {
  if (a.size() != b.size() || a.size() != 36) return false;
  int differing = 0;
  for (std::size_t i = 0; i < a.size(); ++i) differing += a[i] != b[i] ? 1 : 0;
  return differing >= 12;
}

std::string read_metadata_bytes(const std::filesystem::path& folder) {
  if (!is_complete(folder))
    throw CheckpointError(folder.string() +
                          " is not a complete checkpoint: it has no .metadata file, which a save writes last");
  return read_whole(folder / layout::kMetadataFile);
}

}  // namespace

const Metadata::Entry* Metadata::find(const std::string& fqn) const {
  const auto found = entries.find(fqn);
  return found == entries.end() ? nullptr : &found->second;
}

const TensorEntry* Metadata::find_tensor(const std::string& fqn) const {
  const Entry* entry = find(fqn);
  return entry == nullptr ? nullptr : std::get_if<TensorEntry>(entry);
}

Metadata decode_metadata(std::string bytes, const std::string& what) {
  const PickleTree tree = PickleTree::parse(std::move(bytes), what, 0, kGlobals);
  return Decoder(tree).decode();
}

Metadata read_metadata(const std::filesystem::path& folder) {
  return decode_metadata(read_metadata_bytes(folder), (folder / layout::kMetadataFile).string());
}

VerifiedMetadata read_verified_metadata(const std::filesystem::path& folder) {
  std::string bytes = read_metadata_bytes(folder);
  auto checksums = read_checksums(folder);
  std::string fault;
  if (checksums) {
    const auto expected = checksums->files.find(layout::kMetadataFile);
    if (expected == checksums->files.end()) {
      fault = std::string(kChecksumsFile) + " does not name .metadata";
    } else {
      fault = compare_checksum(layout::kMetadataFile, checksum_of(bytes).crc, expected->second);
    }
  }
  VerifiedMetadata result;
  try {
    result.metadata = decode_metadata(std::move(bytes), (folder / layout::kMetadataFile).string());
  } catch (const CheckpointError& error) {
    if (fault.empty()) throw;
    throw CheckpointError(folder.string() + ": " + fault + " (" + error.what() + ")");
  }
  if (!fault.empty() && !is_other_save(result.metadata.save_id, checksums->save_id))
    throw CheckpointError(folder.string() + ": " + fault);
  if (fault.empty()) {
    result.checksums = std::move(checksums);
  } else if (speaks_for_all()) {
    spdlog::warn(
        "{} has the checksums of another save: its files were written anew by another program and are read "
        "without them",
        folder.string());
  }
  return result;
}

bool is_complete(const std::filesystem::path& folder) { return is_file(folder / layout::kMetadataFile); }

}  // namespace titan::checkpoint
