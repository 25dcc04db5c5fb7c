#include "base/error.h"
#include "checkpoint/dcp/metadata.h"
#include "checkpoint/format/dtype.h"
#include "checkpoint/format/pickle_writer.h"

namespace titan::checkpoint {
namespace {

constexpr const char* kMetadataModule = "torch.distributed.checkpoint.metadata";
constexpr const char* kFilesystemModule = "torch.distributed.checkpoint.filesystem";

class Encoder {
 public:
  std::string encode(const Metadata& metadata, const StorageOrder& storage_order,
                     const std::filesystem::path& checkpoint_path, const std::string& save_id) {
    begin_object(kMetadataModule, "Metadata");
    out_.text("state_dict_metadata");
    state_dict_metadata(metadata);
    out_.text("planner_data");
    planner_data(metadata);
    out_.text("storage_data");
    storage_data(metadata, storage_order);
    out_.text("storage_meta");
    storage_meta(checkpoint_path, save_id);
    out_.text("version");
    out_.text("1.0.0");
    end_object();
    return out_.finish();
  }

 private:
  // Begins an instance and its state: a dict with one entry per field.
  void begin_object(const char* module, const char* name) {
    out_.global(module, name);
    out_.empty_tuple();
    out_.new_object();
    out_.empty_dict();
    out_.mark();
  }
  void end_object() {
    out_.set_from_mark();
    out_.build();
  }

  void torch_size(const std::vector<std::int64_t>& size) {
    out_.global("torch", "Size");
    if (size.empty()) {
      out_.empty_tuple();
    } else {
      out_.mark();
      for (const std::int64_t dim : size) out_.integer(dim);
      out_.tuple_from_mark();
    }
    out_.tuple(1);
    out_.reduce();
  }

  void properties(c10::ScalarType dtype) {
    out_.global(kMetadataModule, "TensorProperties");
    out_.empty_tuple();
    out_.new_object();
    out_.mark();
    out_.global("torch", dtype_name(dtype));
    out_.global("torch.serialization", "_get_layout");
    out_.text("torch.strided");
    out_.tuple(1);
    out_.reduce();
    out_.boolean(false);  // requires_grad
    out_.global(kMetadataModule, "_MEM_FORMAT_ENCODING");
    out_.integer(0);  // contiguous
    out_.tuple(1);
    out_.reduce();
    out_.boolean(false);  // pin_memory
    out_.tuple_from_mark();
    out_.build();
  }

  void tensor(const TensorEntry& entry) {
    begin_object(kMetadataModule, "TensorStorageMetadata");
    out_.text("properties");
    properties(entry.dtype);
    out_.text("size");
    torch_size(entry.size);
    out_.text("chunks");
    out_.empty_list();
    out_.mark();
    for (const StoredChunk& chunk : entry.chunks) {
      begin_object(kMetadataModule, "ChunkStorageMetadata");
      out_.text("offsets");
      torch_size(chunk.offsets);
      out_.text("sizes");
      torch_size(chunk.sizes);
      end_object();
    }
    out_.append_from_mark();
    end_object();
  }

  void state_dict_metadata(const Metadata& metadata) {
    out_.empty_dict();
    out_.mark();
    for (const std::string& fqn : metadata.order) {
      out_.text(fqn);
      const Metadata::Entry& entry = metadata.entries.at(fqn);
      if (const auto* tensor_entry = std::get_if<TensorEntry>(&entry)) {
        tensor(*tensor_entry);
      } else {
        out_.global(kMetadataModule, "BytesStorageMetadata");
        out_.empty_tuple();
        out_.new_object();
      }
    }
    out_.set_from_mark();
  }

  void planner_data(const Metadata& metadata) {
    out_.empty_dict();
    out_.mark();
    for (const std::string& fqn : metadata.order) {
      const auto path = metadata.paths.find(fqn);
      if (path == metadata.paths.end()) continue;
      out_.text(fqn);
      out_.mark();
      for (const auto& step : path->second) {
        if (const auto* name = std::get_if<std::string>(&step)) {
          out_.text(*name);
        } else {
          out_.integer(std::get<std::int64_t>(step));
        }
      }
      out_.tuple_from_mark();
    }
    out_.set_from_mark();
  }

  void storage_entry(const std::string& fqn, const StoredChunk* chunk, std::size_t index,
                     const StorageLocation& location) {
    begin_object(kMetadataModule, "MetadataIndex");
    out_.text("fqn");
    out_.text(fqn);
    out_.text("index");
    if (chunk == nullptr) {
      out_.none();
    } else {
      out_.integer(static_cast<std::int64_t>(index));
      out_.text("offset");
      torch_size(chunk->offsets);
    }
    end_object();
    begin_object(kFilesystemModule, "_StorageInfo");
    out_.text("relative_path");
    out_.text(location.relative_path);
    out_.text("offset");
    out_.integer(static_cast<std::int64_t>(location.offset));
    out_.text("length");
    out_.integer(static_cast<std::int64_t>(location.length));
    end_object();
  }

  void storage_data(const Metadata& metadata, const StorageOrder& storage_order) {
    out_.empty_dict();
    out_.mark();
    for (const auto& [fqn, index] : storage_order) {
      const Metadata::Entry& entry = metadata.entries.at(fqn);
      if (index.has_value()) {
        const StoredChunk& chunk = std::get<TensorEntry>(entry).chunks.at(*index);
        storage_entry(fqn, &chunk, *index, chunk.location);
      } else {
        storage_entry(fqn, nullptr, 0, std::get<ValueEntry>(entry).location);
      }
    }
    out_.set_from_mark();
  }

  void storage_meta(const std::filesystem::path& checkpoint_path, const std::string& save_id) {
    begin_object(kMetadataModule, "StorageMeta");
    out_.text("checkpoint_id");
    out_.global("pathlib", "PosixPath");
    out_.mark();
    for (const auto& part : checkpoint_path) {
      if (!part.empty()) out_.text(part.string());
    }
    out_.tuple_from_mark();
    out_.reduce();
    out_.text("save_id");
    out_.text(save_id);
    out_.text("load_id");
    out_.none();
    out_.text("modules");
    out_.empty_list();
    end_object();
  }

  PickleWriter out_{4};
};

}  // namespace

std::string encode_metadata(const Metadata& metadata, const StorageOrder& storage_order,
                            const std::filesystem::path& checkpoint_path, const std::string& save_id) {
  return Encoder().encode(metadata, storage_order, checkpoint_path, save_id);
}

}  // namespace titan::checkpoint
