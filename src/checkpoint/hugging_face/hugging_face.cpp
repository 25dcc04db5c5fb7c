#include "checkpoint/hugging_face/hugging_face.h"

#include <ATen/ATen.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/fs.h"
#include "base/text.h"
#include "checkpoint/dcp/collective_save.h"
#include "checkpoint/format/cast.h"
#include "checkpoint/hugging_face/hugging_face_files.h"
#include "checkpoint/io/checksums.h"
#include "checkpoint/io/file.h"
#include "facts/adapter_names.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

// Returns the folder of weights that are a folder or one file.
fs::path folder_of(const fs::path& weights) { return fs::is_directory(weights) ? weights : weights.parent_path(); }

struct Place {
  std::string file;
  SafetensorsEntry entry;
};

// Returns the tensors that an export has of a parameter.
std::vector<HubTensor> exported_names(const ModelNaming& naming, const std::string& fqn) {
  if (!is_exported(naming, fqn)) return {};
  return naming.to_hub(fqn);
}

// Returns the part of `item` that `tensor` holds, without the stacked dim; nullopt if this rank holds none of it.
std::optional<TensorItem> part_of(const TensorItem& item, const HubTensor& tensor) {
  if (!tensor.index) return item;
  const std::int64_t row = *tensor.index - item.spec.offset[0];
  if (row < 0 || row >= item.spec.local_shape[0]) return std::nullopt;
  const auto without_first = [](const std::vector<std::int64_t>& dims) {
    return std::vector<std::int64_t>(dims.begin() + 1, dims.end());
  };
  TensorItem part = item;
  part.local = item.local.detach().select(0, row);
  part.spec = {without_first(item.spec.global_shape), without_first(item.spec.offset),
               without_first(item.spec.local_shape)};
  return part;
}

// Returns the layout of the files. Every rank computes the same one from its own items: it has a shard of every tensor.
std::vector<SafetensorsFile> lay_out(const std::vector<Item>& items, const HuggingFaceFormat& format,
                                     c10::ScalarType dtype, std::uint64_t file_bytes) {
  std::vector<SafetensorsEntry> entries;
  for (const Item& item : items) {
    const auto* tensor = std::get_if<TensorItem>(&item);
    if (!tensor) continue;
    for (const HubTensor& hub : exported_names(format.naming, tensor->fqn)) {
      const auto shape = shape_in_hub(tensor->spec.global_shape, hub);
      if (shape.empty() || shape.size() > 2)
        throw CheckpointError(tensor->fqn + " has " + std::to_string(shape.size()) +
                              " dims; only 1 and 2 can be exported");
      entries.push_back({hub.name, dtype, shape});
    }
  }
  const bool are_adapters = !format.naming.adapter_config.empty();
  return are_adapters ? lay_out_adapter_file(std::move(entries)) : lay_out_files(std::move(entries), file_bytes);
}

std::map<std::string, Place> places_of(const std::vector<SafetensorsFile>& files) {
  std::map<std::string, Place> places;
  for (const auto& file : files) {
    for (const auto& entry : file.entries) places[entry.name] = {file.name, entry};
  }
  return places;
}

std::int64_t their_row(std::int64_t row, std::int64_t rows, const HubTensor& tensor) {
  return tensor.rotary_heads == 0 ? row : rotary_row(row, rows, tensor.rotary_heads);
}

void write_box(PlacedFile& file, const SafetensorsEntry& entry, const TensorItem& item, const HubTensor& tensor) {
  const auto& spec = item.spec;
  if (item.local.numel() == 0) return;
  const at::Tensor box = cast(item.local.detach(), entry.dtype).to(at::kCPU).contiguous();
  const auto* data = static_cast<const char*>(box.const_data_ptr());
  const auto item_size = static_cast<std::uint64_t>(box.element_size());
  const bool is_matrix = spec.global_shape.size() == 2;
  const auto row_bytes = (is_matrix ? static_cast<std::uint64_t>(spec.global_shape[1]) : 1) * item_size;
  const auto first = is_matrix ? static_cast<std::uint64_t>(spec.offset[1]) * item_size : 0;
  const auto part = (is_matrix ? static_cast<std::uint64_t>(spec.local_shape[1]) : 1) * item_size;
  const std::int64_t rows = spec.local_shape[0];
  if (tensor.rotary_heads == 0 && part == row_bytes) {
    file.write(entry.begin + static_cast<std::uint64_t>(spec.offset[0]) * row_bytes, data, box.nbytes());
    return;
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto to = static_cast<std::uint64_t>(their_row(spec.offset[0] + row, spec.global_shape[0], tensor));
    file.write(entry.begin + to * row_bytes + first, data + static_cast<std::uint64_t>(row) * part, part);
  }
}

// File name -> pieces, which the ranks exchange.
using Pieces = std::map<std::string, std::vector<Piece>>;

std::string encode_pieces(const Pieces& pieces) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, list] : pieces) {
    nlohmann::json& out = json[name] = nlohmann::json::array();
    for (const Piece& piece : list) out.push_back({piece.begin, piece.size, piece.crc});
  }
  std::string bytes;
  nlohmann::json::to_msgpack(json, bytes);
  return bytes;
}

Pieces join_all(const std::vector<std::string>& replies) {
  Pieces pieces;
  for (const std::string& bytes : replies) {
    const nlohmann::json reply = nlohmann::json::from_msgpack(bytes);
    for (const auto& [name, list] : reply.items())
      for (const auto& piece : list)
        pieces[name].push_back(
            {piece.at(0).get<std::uint64_t>(), piece.at(1).get<std::uint64_t>(), piece.at(2).get<std::uint32_t>()});
  }
  for (auto& [name, list] : pieces) list = join_pieces(std::move(list));
  return pieces;
}

// Writes this rank's shards of the chosen items. Returns the pieces written.
Pieces write_boxes(const fs::path& folder, const std::vector<SafetensorsFile>& files, const std::vector<Item>& items,
                   const std::vector<std::size_t>& chosen, const HuggingFaceFormat& format) {
  const auto places = places_of(files);
  std::map<std::string, std::unique_ptr<PlacedFile>> open;
  for (const std::size_t index : chosen) {
    const auto* item = std::get_if<TensorItem>(&items.at(index));
    if (!item) continue;
    for (const HubTensor& tensor : exported_names(format.naming, item->fqn)) {
      const auto part = part_of(*item, tensor);
      if (!part) continue;
      const auto& place = places.at(tensor.name);
      auto& file = open[place.file];
      if (!file) file = std::make_unique<PlacedFile>(folder / place.file);
      write_box(*file, place.entry, *part, tensor);
    }
  }
  Pieces pieces;
  for (auto& [name, file] : open) {
    file->finish();
    pieces[name] = join_pieces(file->pieces());
  }
  return pieces;
}

// Returns the checksums of the files, combined from the pieces of all ranks.
Checksums checksums_of(const std::vector<SafetensorsFile>& files, const std::vector<std::string>& written) {
  Pieces pieces = join_all(written);
  Checksums checksums;
  for (const auto& file : files) {
    auto& list = pieces[file.name];
    list.push_back({0, file.header.size(), checksum_of(file.header).crc});
    const auto joined = join_pieces(list);
    TITAN_CHECK(joined.size() == 1 && joined[0].size == file.size, file.name + " was not written as a whole");
    checksums.files[file.name] = {file.size, joined[0].crc};
  }
  return checksums;
}

void make_files(const fs::path& folder, const std::vector<SafetensorsFile>& files) {
  for (const auto& file : files) {
    OutputFile out(folder / file.name);
    out.append(file.header.data(), file.header.size());
    out.finish();
    fs::resize_file(folder / file.name, file.size);
  }
}

using Sources = std::map<std::string, std::pair<const MappedSafetensors*, const SafetensorsEntry*>>;

Sources sources_of(const WeightFiles& weights, const std::vector<std::unique_ptr<MappedSafetensors>>& files) {
  Sources sources;
  for (const auto& file : files) {
    for (const auto& entry : file->entries()) {
      if (!weights.has(entry.name, file->path())) continue;
      const auto [found, is_new] = sources.emplace(entry.name, std::make_pair(file.get(), &entry));
      if (!is_new)
        throw CheckpointError(entry.name + " is both in " + found->second.first->path().string() + " and in " +
                              file->path().string());
    }
  }
  return sources;
}

// The names under which a folder stores parameters. If embeddings are tied, the output projection has the embedding's.
class StoredNames {
 public:
  StoredNames(const ModelNaming& naming, const fs::path& folder, const Sources& sources) : naming_(naming) {
    const fs::path file = folder_of(folder) / "config.json";
    if (naming.output.empty() || !fs::is_regular_file(file) ||
        sources.contains(naming.to_hub(naming.output).front().name))
      return;
    is_tied_ = parse_hugging_face_config(read_file(file), file.string()).tied_embeddings;
  }

  bool is_tied() const { return is_tied_; }
  std::vector<HubTensor> operator()(const std::string& fqn) const {
    return naming_.to_hub(is_tied_ && fqn == naming_.output ? naming_.embedding : fqn);
  }

 private:
  const ModelNaming& naming_;
  bool is_tied_ = false;
};

// Throws for everything in the folder that does not match the items, before any weights are overwritten.
void check_sources(const fs::path& folder, const Sources& sources, const std::vector<Item>& items,
                   const StoredNames& stored, bool all_weights) {
  std::vector<std::string> missing, wrong, unexpected;
  std::set<std::string> wanted;
  for (const Item& item : items) {
    const auto* tensor = std::get_if<TensorItem>(&item);
    if (!tensor) continue;
    for (const HubTensor& hub : stored(tensor->fqn)) {
      wanted.insert(hub.name);
      const auto found = sources.find(hub.name);
      if (found == sources.end() && !tensor->tied_to.empty()) continue;      // the folder has the parameter once
      if (found == sources.end() && is_adapter_name(tensor->fqn)) continue;  // the folder is the model without them
      const auto shape = shape_in_hub(tensor->spec.global_shape, hub);
      if (found == sources.end()) {
        missing.push_back(hub.name + " (" + tensor->fqn + ")");
      } else if (found->second.second->shape != shape) {
        wrong.push_back(hub.name + " is " + dist::shape_text(found->second.second->shape) + ", the model's " +
                        tensor->fqn + " " + dist::shape_text(shape));
      }
    }
  }
  for (const auto& [name, source] : sources) {
    // Older files contain the rotary frequencies, which follow from the configuration.
    if (all_weights && !wanted.contains(name) && !name.ends_with("rotary_emb.inv_freq")) unexpected.push_back(name);
  }
  if (missing.empty() && wrong.empty() && unexpected.empty()) return;
  throw CheckpointError(folder.string() + " does not fit the model." +
                        (missing.empty() ? "" : " Missing: " + join(missing, ", ") + ".") +
                        (unexpected.empty() ? "" : " Unexpected: " + join(unexpected, ", ") + ".") +
                        (wrong.empty() ? "" : " Other shapes: " + join(wrong, "; ") + "."));
}

void fill(const TensorItem& item, const MappedSafetensors& file, const SafetensorsEntry& entry,
          const HubTensor& tensor) {
  if (item.local.numel() == 0) return;
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < item.spec.local_shape[0]; ++row)
    rows.push_back(their_row(item.spec.offset[0] + row, item.spec.global_shape[0], tensor));
  file.copy_rows(entry, rows, item.spec.offset.size() == 2 ? item.spec.offset[1] : 0, item.local.detach());
}

// Verifies the files with weights if the folder has checksums. Each rank reads an equal share.
void verify_files(const fs::path& path, Ranks& ranks) {
  const std::string action = "loading " + path.string() + " failed";
  const fs::path folder = folder_of(path);
  const std::string hint = ". If another program changed it on purpose, remove " + (folder / kChecksumsFile).string();
  std::optional<Checksums> checksums;
  const auto read = on_every_rank(ranks, action, [&] {
    checksums = read_checksums(folder);
    Pieces pieces;
    if (!checksums) return encode_pieces(pieces);
    std::erase_if(checksums->files, [&](const auto& file) {
      const bool is_other = folder != path && file.first != path.filename();
      return is_other || fs::path(file.first).extension() != ".safetensors";
    });
    const auto wrong = wrong_sizes(folder, *checksums);
    if (!wrong.empty()) throw DamagedCheckpoint(join(wrong, "; ") + hint);
    const auto rank = static_cast<std::uint64_t>(ranks.rank()), size = static_cast<std::uint64_t>(ranks.size());
    for (const auto& [name, file] : checksums->files) {
      const std::uint64_t share = (file.size + size - 1) / size;
      const std::uint64_t begin = std::min(share * rank, file.size), end = std::min(begin + share, file.size);
      pieces[name] = {{begin, end - begin, crc_of_range(InputFile(folder / name), begin, end - begin)}};
    }
    return encode_pieces(pieces);
  });
  std::vector<std::string> wrong;
  for (const auto& [name, pieces] : join_all(read)) {
    std::string fault = compare_checksum(name, pieces.at(0).crc, checksums->files.at(name));
    if (!fault.empty()) wrong.push_back(std::move(fault));
  }
  if (!wrong.empty()) throw DamagedCheckpoint(action + ": " + join(wrong, "; ") + hint);
}

}  // namespace

std::int64_t rotary_row(std::int64_t row, std::int64_t rows, std::int64_t heads) {
  const std::int64_t size = rows / heads, in_head = row % size;
  return row - in_head + in_head % 2 * (size / 2) + in_head / 2;
}

std::uint64_t save_hugging_face(const fs::path& folder, const std::vector<Item>& items, const HuggingFaceFormat& format,
                                c10::ScalarType dtype, Ranks& ranks, std::uint64_t file_bytes) {
  std::vector<SafetensorsFile> files;
  SaveSteps steps;
  steps.plan = [&] { files = lay_out(items, format, dtype, file_bytes); };
  steps.prepare = [&](const fs::path& temporary) { make_files(temporary, files); };
  steps.write = [&](const fs::path& temporary, const std::vector<std::size_t>& chosen) {
    return encode_pieces(write_boxes(temporary, files, items, chosen, format));
  };
  steps.commit = [&](const fs::path& temporary, const std::vector<std::string>& written, SavePlan& /*plan*/) {
    return write_hugging_face_index(temporary, files, format.small_files(dtype), checksums_of(files, written));
  };
  return collective_save(folder, "exporting " + folder.string() + " failed", items, ranks, steps);
}

void load_hugging_face(const fs::path& folder, const std::vector<Item>& items, const HuggingFaceFormat& format,
                       Ranks& ranks, bool all_weights) {
  verify_files(folder, ranks);
  on_every_rank(ranks, "loading " + folder.string() + " failed", [&] {
    const WeightFiles weights(folder);
    std::vector<std::unique_ptr<MappedSafetensors>> files;
    for (const auto& path : weights.files()) files.push_back(std::make_unique<MappedSafetensors>(path));
    const auto sources = sources_of(weights, files);
    const StoredNames stored(format.naming, folder, sources);
    check_sources(folder, sources, items, stored, all_weights);
    if (stored.is_tied() && !format.naming.is_tied && all_weights && ranks.rank() == 0)
      spdlog::warn("{} stores {} and {} as one, which are two parameters here", folder.string(),
                   format.naming.embedding, format.naming.output);
    const LoadItems own(items);
    std::set<std::string> tied;
    for (const Item& item : own.items()) {
      const auto* tensor = std::get_if<TensorItem>(&item);
      if (!tensor) continue;
      for (const HubTensor& theirs : stored(tensor->fqn)) {
        const auto part = part_of(*tensor, theirs);
        const auto source = sources.find(theirs.name);
        if (!part || source == sources.end()) continue;  // of another rank, or a second name that is not stored
        if (!tensor->tied_to.empty()) tied.insert(tensor->fqn);
        fill(*part, *source->second.first, *source->second.second, theirs);
      }
    }
    own.check_ties(tied);
    return std::string();
  });
}

}  // namespace titan::checkpoint
