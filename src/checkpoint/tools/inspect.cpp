#include "checkpoint/tools/inspect.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/error.h"
#include "base/run_layout.h"
#include "base/text.h"
#include "checkpoint/dcp/metadata.h"
#include "checkpoint/dcp/ranks.h"
#include "checkpoint/format/archive.h"
#include "checkpoint/format/dtype.h"
#include "checkpoint/hugging_face/hugging_face_files.h"
#include "checkpoint/io/checksums.h"
#include "checkpoint/io/read_error.h"
#include "checkpoint/names/torchtitan_main.h"
#include "checkpoint/torchtitan_keys.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

std::string group_of(const std::string& fqn) {
  if (fqn.starts_with("optimizer.")) return "optimizer";
  return is_model_key(fqn) ? "model" : "other";
}

std::uint64_t tensor_bytes(c10::ScalarType dtype, const std::vector<std::int64_t>& shape) {
  std::uint64_t bytes = c10::elementSize(dtype);
  for (const std::int64_t size : shape) bytes *= static_cast<std::uint64_t>(size);
  return bytes;
}

std::vector<FileInfo> files_of(const fs::path& path) {
  if (!fs::is_directory(path)) return {{path.filename(), fs::file_size(path)}};
  std::vector<FileInfo> files;
  for (const std::string& name : listing_of(path))
    if (const auto size = size_of(path / name)) files.push_back({name, *size});
  std::sort(files.begin(), files.end(), [](const FileInfo& a, const FileInfo& b) { return a.name < b.name; });
  return files;
}

std::optional<std::int64_t> read_number(const fs::path& folder, const Metadata& metadata, const std::string& fqn) {
  const Metadata::Entry* entry = metadata.find(fqn);
  if (entry == nullptr) return std::nullopt;
  const auto* tensor = std::get_if<TensorEntry>(entry);
  if (tensor != nullptr && (!tensor->size.empty() || tensor->chunks.size() != 1)) return std::nullopt;
  const StorageLocation& where = tensor ? tensor->chunks[0].location : std::get<ValueEntry>(*entry).location;
  const InputFile file(folder / where.relative_path);
  const ZipReader archive(file, where.offset, where.length, fqn);
  if (tensor == nullptr) return read_value_archive(archive).as_int(fqn);
  const at::Tensor number = at::empty({}, at::kLong);  // some programs keep numbers as tensors without dims
  const StoredTensor stored(archive);
  if (!stored.sizes().empty()) archive.fail("the stored tensor has another shape than .metadata says");
  stored.read_box({}, number);
  return number.item<std::int64_t>();
}

// Returns the number of ranks that saved: a full state stores it, a model-only save has at least one file per rank.
std::optional<std::int64_t> ranks_of(const fs::path& folder, const Metadata& metadata,
                                     const std::vector<FileInfo>& files) {
  if (const auto ranks = read_number(folder, metadata, "titan.rng.world_size")) return ranks;
  std::int64_t ranks = 0;
  for (const FileInfo& file : files) {
    int rank = 0, part = 0, length = 0;
    const int found = std::sscanf(file.name.c_str(), "__%d_%d.distcp%n", &rank, &part, &length);
    if (found == 2 && static_cast<std::size_t>(length) == file.name.size())
      ranks = std::max<std::int64_t>(ranks, rank + 1);
  }
  return ranks == 0 ? std::nullopt : std::optional(ranks);
}

std::int64_t time_of_change(const fs::path& path) {
  const auto time = std::chrono::file_clock::to_sys(fs::last_write_time(path));
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

void inspect_dcp(Inspection& out) {
  auto [metadata, checksums] = read_verified_metadata(out.path);
  const auto wrong = checksums ? wrong_sizes(out.path, *checksums) : std::vector<std::string>();
  if (!wrong.empty()) throw CheckpointError(out.path.string() + " is damaged: " + join(wrong, "; "));
  out.has_checksums = checksums.has_value();
  out.save_id = metadata.save_id;
  out.step = read_number(out.path, metadata, "train_state.step");
  out.tokens_seen = read_number(out.path, metadata, "train_state.ntokens_seen");
  out.ranks = ranks_of(out.path, metadata, out.files);
  out.saved_at = time_of_change(out.path / layout::kMetadataFile);
  for (const std::string& fqn : metadata.order) {
    const Metadata::Entry& entry = *metadata.find(fqn);
    KeyInfo key{fqn, group_of(fqn), false, "", {}, 1, 0};
    if (const auto* tensor = std::get_if<TensorEntry>(&entry)) {
      key.dtype = dtype_name(tensor->dtype);
      key.shape = tensor->size;
      key.shards = tensor->chunks.size();
      key.bytes = tensor_bytes(tensor->dtype, tensor->size);
    } else {
      key.is_value = true;
      key.bytes = std::get<ValueEntry>(entry).location.length;
    }
    out.keys.push_back(std::move(key));
  }
}

void inspect_stream(Inspection& out) {
  const auto source = open_source(out.path, out.kind);
  for (const TensorInfo& tensor : source->tensors())
    out.keys.push_back({tensor.name, group_of(tensor.name), false, dtype_name(tensor.dtype), tensor.shape, 1,
                        tensor_bytes(tensor.dtype, tensor.shape)});
  const fs::path folder = fs::is_directory(out.path) ? out.path : out.path.parent_path();
  const fs::path index = folder / kHuggingFaceIndex;
  out.saved_at = time_of_change(fs::exists(index) ? index : out.path);
  if (out.kind == CheckpointKind::kHuggingFace || folder == out.path)
    out.has_checksums = read_checksums(folder).has_value();
}

}  // namespace

bool has_optimizer(const Inspection& checkpoint) {
  return std::ranges::any_of(checkpoint.keys, [](const KeyInfo& key) { return key.group == "optimizer"; });
}

Inspection inspect_checkpoint(const fs::path& path) {
  Inspection out;
  out.path = path;
  out.kind = detect_kind(path);
  out.files = files_of(path);
  try {
    if (out.kind != CheckpointKind::kHuggingFace) check_texts(path, out.kind);
    if (out.kind == CheckpointKind::kDcp) {
      inspect_dcp(out);
    } else {
      inspect_stream(out);
    }
  } catch (const ReadError&) {
    throw;
  } catch (const CheckpointError& error) {
    throw DamagedCheckpoint(error.what());
  }
  if (out.kind != CheckpointKind::kHuggingFace) {
    std::vector<std::string> names;
    for (const KeyInfo& key : out.keys) names.push_back(key.name);
    try {
      if (has_main_names(names, path.string())) out.names = "TorchTitan's main branch's, which are read as ours";
    } catch (const CheckpointError& error) {
      out.names = error.what();
    }
  }
  return out;
}

std::optional<std::string> tokenizer_of_run(const fs::path& path) {
  if (!is_complete(path)) return std::nullopt;
  const auto [metadata, checksums] = read_verified_metadata(path);
  const Metadata::Entry* entry = metadata.find(kRunKey);
  const auto* where = entry ? std::get_if<ValueEntry>(entry) : nullptr;
  if (where == nullptr) return std::nullopt;
  const InputFile file(path / where->location.relative_path);
  const ZipReader archive(file, where->location.offset, where->location.length, kRunKey);
  const Value run = read_value_archive(archive);
  const Value* tokenizer = run.as_dict(kRunKey).find("tokenizer");
  if (tokenizer == nullptr) return std::nullopt;
  return tokenizer->as_string(kRunKey);
}

}  // namespace titan::checkpoint
