#include "checkpoint/stream/tensor_source.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/dcp/metadata.h"
#include "checkpoint/dcp/partial_reads.h"
#include "checkpoint/format/archive.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/format/torch_archive.h"
#include "checkpoint/hugging_face/hugging_face_files.h"
#include "checkpoint/io/checksums.h"
#include "checkpoint/io/crc32.h"
#include "checkpoint/names/torchtitan_main.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kLongestPickle = 256 << 20;

at::Tensor empty_rows(const TensorInfo& info, std::int64_t rows) {
  std::vector<std::int64_t> shape = info.shape.empty() ? std::vector<std::int64_t>{1} : info.shape;
  shape[0] = rows;
  return at::empty(shape, at::TensorOptions(info.dtype));
}

// Collects what was read of records, and verifies it.
class ReadRecords {
 public:
  explicit ReadRecords(fs::path folder) : folder_(std::move(folder)) {}
  void add(std::optional<PartialRead> read, const std::string& file) {
    if (!read) return;
    read->file = file;
    reads_.push_back(std::move(*read));
  }
  void verify() {
    auto verdict = judge_reads(std::move(reads_));
    for (const PartialRead& record : verdict.open) {
      std::string fault = verify_record(InputFile(folder_ / record.file), record);
      if (!fault.empty()) verdict.faults.push_back(std::move(fault));
    }
    if (!verdict.faults.empty())
      throw DamagedCheckpoint(folder_.string() + " is damaged: " + join(verdict.faults, "; "));
  }

 private:
  fs::path folder_;
  std::vector<PartialRead> reads_;
};

class DcpSource : public TensorSource {
 public:
  explicit DcpSource(const fs::path& folder) : folder_(folder), reads_(folder) {
    auto [metadata, checksums] = read_verified_metadata(folder);
    const auto wrong = checksums ? wrong_sizes(folder, *checksums) : std::vector<std::string>();
    if (!wrong.empty()) throw DamagedCheckpoint(folder.string() + " is damaged: " + join(wrong, "; "));
    metadata_ = std::move(metadata);
    for (const std::string& fqn : metadata_.order) {
      const TensorEntry* entry = metadata_.find_tensor(fqn);
      if (entry == nullptr) continue;
      tensors_.push_back({fqn, entry->dtype, entry->size});
      entries_.push_back(entry);
    }
  }

  at::Tensor read(std::size_t index, std::int64_t begin, std::int64_t end) override {
    const TensorInfo& info = tensors_.at(index);
    at::Tensor rows = empty_rows(info, end - begin);
    std::int64_t covered = 0;
    for (const StoredChunk& chunk : entries_.at(index)->chunks) covered += read_chunk(info, chunk, begin, rows);
    if (covered != rows.numel())
      throw DamagedCheckpoint(info.name + ": the stored chunks hold " + std::to_string(covered) + " of the " +
                              std::to_string(rows.numel()) + " elements of rows " + std::to_string(begin) + " to " +
                              std::to_string(end));
    return rows;
  }

  void verify() override { reads_.verify(); }

 private:
  // Reads the part of `rows` that is in the chunk. Returns its number of elements.
  std::int64_t read_chunk(const TensorInfo& info, const StoredChunk& chunk, std::int64_t begin,
                          const at::Tensor& rows) {
    const InputFile& file = open(chunk.location.relative_path);
    at::Tensor target = info.shape.empty() ? rows.squeeze(0) : rows;
    std::vector<std::int64_t> start(info.shape.size(), 0);
    for (std::size_t d = 0; d < info.shape.size(); ++d) {
      const auto dim = static_cast<std::int64_t>(d);
      const std::int64_t offset = d == 0 ? begin : 0;  // position of `target` in the tensor
      const std::int64_t first = std::max(chunk.offsets[d], offset);
      const std::int64_t last = std::min(chunk.offsets[d] + chunk.sizes[d], offset + rows.size(dim));
      if (first >= last) return 0;
      start[d] = first - chunk.offsets[d];
      target = target.narrow(dim, first - offset, last - first);
    }
    const ZipReader archive(file, chunk.location.offset, chunk.location.length, info.name);
    const StoredTensor stored(archive);
    if (stored.sizes() != chunk.sizes) archive.fail("the stored tensor has another shape than .metadata says");
    if (stored.dtype() != info.dtype) archive.fail("the stored tensor has another dtype than .metadata says");
    reads_.add(stored.read_box(start, target), chunk.location.relative_path);
    return target.numel();
  }

  const InputFile& open(const std::string& name) {
    auto& file = files_[name];
    if (!file) file = std::make_unique<InputFile>(folder_ / name);
    return *file;
  }

  fs::path folder_;
  Metadata metadata_;
  std::vector<const TensorEntry*> entries_;  // of `metadata_`, by tensor
  std::map<std::string, std::unique_ptr<InputFile>> files_;
  ReadRecords reads_;
};

class SafetensorsSource : public TensorSource {
 public:
  explicit SafetensorsSource(const fs::path& path) : folder_(fs::is_directory(path) ? path : path.parent_path()) {
    const WeightFiles weights(path);
    for (const fs::path& file : weights.files()) add(weights, file);
    for (const auto& [tensor, file] : weights.index())
      if (!names_.contains(tensor))
        throw CheckpointError(folder_.string() + "/" + kHuggingFaceIndex + " says that " + tensor + " is in " + file +
                              ", which lacks it");
    checksums_ = read_checksums(folder_);
  }

  // Reads with system calls, not through a map: mapped pages count as memory of the process.
  at::Tensor read(std::size_t index, std::int64_t begin, std::int64_t end) override {
    const TensorInfo& info = tensors_.at(index);
    const Place& place = places_.at(index);
    at::Tensor rows = empty_rows(info, end - begin);
    const auto row_bytes =
        static_cast<std::uint64_t>(info.elements_per_row()) * static_cast<std::uint64_t>(rows.element_size());
    const std::uint64_t at = place.begin + static_cast<std::uint64_t>(begin) * row_bytes;
    if (rows.numel() == 0) return rows;
    files_[place.file].input->read(at, rows.data_ptr(), rows.nbytes());
    files_[place.file].pieces.push_back({at, rows.nbytes(), crc32(0, rows.const_data_ptr(), rows.nbytes())});
    return rows;
  }

  void verify() override {
    if (!checksums_) return;
    std::vector<std::string> wrong;
    for (auto& file : files_) {
      const std::string name = file.input->path().filename();
      const auto expected = checksums_->files.find(name);
      if (expected == checksums_->files.end()) continue;
      const std::uint64_t size = file.input->size();
      file.pieces.push_back({0, file.header_size, crc_of_range(*file.input, 0, file.header_size)});
      const auto joined = join_pieces(std::move(file.pieces));
      const bool all_read = joined.size() == 1 && joined[0].size == size;
      std::string fault =
          compare_checksum(name, all_read ? joined[0].crc : crc_of_range(*file.input, 0, size), expected->second);
      if (!fault.empty()) wrong.push_back(std::move(fault));
    }
    if (!wrong.empty()) throw DamagedCheckpoint(folder_.string() + " is damaged: " + join(wrong, "; "));
  }

 private:
  struct File {
    std::unique_ptr<InputFile> input;
    std::uint64_t header_size = 0;
    std::vector<Piece> pieces;  // pieces read so far
  };
  struct Place {
    std::size_t file;
    std::uint64_t begin;
  };

  void add(const WeightFiles& weights, const fs::path& path) {
    const auto entries = read_safetensors_header(path);
    File file{std::make_unique<InputFile>(path), 0, {}};
    file.header_size = entries.empty() ? file.input->size() : entries.front().begin;
    for (const auto& entry : entries) {
      if (!weights.has(entry.name, path)) continue;
      if (!names_.insert(entry.name).second)
        throw CheckpointError(entry.name + " is in two files of " + folder_.string());
      tensors_.push_back({entry.name, entry.dtype, entry.shape});
      places_.push_back({files_.size(), entry.begin});
    }
    files_.push_back(std::move(file));
  }

  fs::path folder_;
  std::vector<File> files_;
  std::vector<Place> places_;
  std::set<std::string> names_;
  std::optional<Checksums> checksums_;
};

class TorchSource : public TensorSource {
 public:
  explicit TorchSource(const fs::path& path)
      : file_(path), archive_(file_, 0, file_.size(), path.filename(), kMaxTorchRecords), reads_(path.parent_path()) {
    check_byte_order(archive_);
    const ZipRecord& record = archive_.get("data.pkl");
    if (record.size > kLongestPickle) archive_.fail("its data.pkl has " + std::to_string(record.size) + " bytes");
    const PickleTree tree =
        PickleTree::parse(archive_.read(record), archive_.what(), archive_.payload_offset(record), tensor_globals());
    const Node& dict = tree[find_weights(tree)];
    for (std::size_t i = 0; i + 1 < dict.children.size(); i += 2) {
      const Node& key = tree[dict.children[i]];
      if (key.kind != Node::Kind::kText) archive_.fail("it holds a dict with keys that are not names");
      const Node& value = tree[dict.children[i + 1]];
      if (value.kind != Node::Kind::kObject)
        archive_.fail(
            "\"" + std::string(key.text) +
            "\" is not a tensor. Expected one dict of name -> tensor, also under \"model\" or \"state_dict\"; save the "
            "part of it that holds the model");
      TensorDescription tensor = parse_tensor(tree, dict.children[i + 1], archive_);
      tensors_.push_back({std::string(key.text), tensor.dtype, tensor.sizes});
      stored_.emplace_back(archive_, std::move(tensor));
    }
  }

  at::Tensor read(std::size_t index, std::int64_t begin, std::int64_t end) override {
    const TensorInfo& info = tensors_.at(index);
    at::Tensor rows = empty_rows(info, end - begin);
    std::vector<std::int64_t> start(info.shape.size(), 0);
    if (!start.empty()) start[0] = begin;
    auto read = stored_.at(index).read_box(start, info.shape.empty() ? rows.squeeze(0) : rows);
    reads_.add(std::move(read), file_.path().filename());
    return rows;
  }

  bool reads_by_rows(std::size_t index) const override { return stored_.at(index).is_row_major(); }

  void verify() override { reads_.verify(); }

 private:
  // Returns the dict of name -> tensor: the root, or the dict in it that holds the model.
  NodeId find_weights(const PickleTree& tree) const {
    const Node& root = tree[tree.root()];
    if (root.kind != Node::Kind::kDict) archive_.fail("it holds no dict of name -> tensor");
    std::optional<NodeId> inner;
    for (std::size_t i = 0; i + 1 < root.children.size(); i += 2) {
      const Node& key = tree[root.children[i]];
      const bool is_model = key.kind == Node::Kind::kText && (key.text == "model" || key.text == "state_dict");
      if (!is_model || tree[root.children[i + 1]].kind != Node::Kind::kDict) continue;
      if (inner) archive_.fail("it holds two dicts, \"model\" and \"state_dict\"; save the one with the weights");
      inner = root.children[i + 1];
    }
    return inner.value_or(tree.root());
  }

  InputFile file_;
  ZipReader archive_;
  std::vector<StoredTensor> stored_;
  ReadRecords reads_;
};

}  // namespace

std::int64_t TensorInfo::elements_per_row() const {
  std::int64_t count = 1;
  for (std::size_t d = 1; d < shape.size(); ++d) count *= shape[d];
  return count;
}

bool is_model_key(const std::string& fqn) {
  for (const char* prefix : {"optimizer.", "lr_scheduler.", "dataloader.", "train_state.", "grad_scaler.", "titan."})
    if (fqn.starts_with(prefix)) return false;
  return true;
}

bool TensorSource::use_own_names(const std::string& what) {
  std::vector<std::string> names;
  for (const TensorInfo& tensor : tensors_) names.push_back(tensor.name);
  if (!has_main_names(names, what)) return false;
  for (TensorInfo& tensor : tensors_) {
    if (is_fused(tensor.name) && is_model_key(tensor.name)) throw fused_error(what, tensor.name);
    tensor.name = to_own_names(tensor.name);
  }
  return true;
}

std::string without_wrappers(std::string name) {
  if (name.starts_with("module.")) name.erase(0, std::string_view("module.").size());
  for (const std::string_view wrapper : {"_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module."})
    for (auto at = name.find(wrapper); at != std::string::npos; at = name.find(wrapper)) name.erase(at, wrapper.size());
  return name;
}

std::unique_ptr<TensorSource> open_dcp_source(const fs::path& folder) { return std::make_unique<DcpSource>(folder); }

std::unique_ptr<TensorSource> open_safetensors_source(const fs::path& path) {
  return std::make_unique<SafetensorsSource>(path);
}

std::unique_ptr<TensorSource> open_torch_source(const fs::path& file) { return std::make_unique<TorchSource>(file); }

}  // namespace titan::checkpoint
