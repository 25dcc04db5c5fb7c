#include "checkpoint/hugging_face.h"

#include <ATen/ATen.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/fs.h"
#include "base/text.h"
#include "checkpoint/commit.h"
#include "checkpoint/file.h"
#include "checkpoint/planner.h"
#include "checkpoint/safetensors.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

struct File {
  std::string name;
  std::vector<SafetensorsEntry> entries;
  std::string header;
  std::uint64_t size = 0;
};

struct Place {
  std::string file;
  SafetensorsEntry entry;
};

// Every rank works it out from its own items: all have all tensors, each its box of them.
std::vector<File> lay_out(const std::vector<Item>& items, const HuggingFaceFormat& format, c10::ScalarType dtype,
                          std::uint64_t file_bytes) {
  std::vector<File> files;
  std::uint64_t size = 0;
  for (const Item& item : items) {
    const auto* tensor = std::get_if<TensorItem>(&item);
    if (!tensor) continue;
    const auto& shape = tensor->spec.global_shape;
    if (shape.empty() || shape.size() > 2)
      throw CheckpointError(tensor->fqn + " has " + std::to_string(shape.size()) +
                            " dims; only 1 and 2 can be exported");
    const auto numel = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    const auto bytes = static_cast<std::uint64_t>(numel) * c10::elementSize(dtype);
    if (files.empty() || (size > 0 && size + bytes > file_bytes)) {
      files.emplace_back();
      size = 0;
    }
    files.back().entries.push_back({format.tensor(tensor->fqn).name, dtype, shape});
    size += bytes;
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    auto& file = files[i];
    file.name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    file.header = make_safetensors_header(file.entries);
    const auto& last = file.entries.back();
    const auto numel = std::accumulate(last.shape.begin(), last.shape.end(), std::int64_t{1}, std::multiplies<>());
    file.size = last.begin + static_cast<std::uint64_t>(numel) * c10::elementSize(dtype);
  }
  return files;
}

std::map<std::string, Place> places_of(const std::vector<File>& files) {
  std::map<std::string, Place> places;
  for (const auto& file : files) {
    for (const auto& entry : file.entries) places[entry.name] = {file.name, entry};
  }
  return places;
}

std::int64_t their_row(std::int64_t row, std::int64_t rows, const HuggingFaceTensor& tensor) {
  return tensor.rotary_heads == 0 ? row : rotary_row(row, rows, tensor.rotary_heads);
}

void write_box(PlacedFile& file, const SafetensorsEntry& entry, const TensorItem& item,
               const HuggingFaceTensor& tensor) {
  const auto& spec = item.spec;
  if (item.local.numel() == 0) return;
  const at::Tensor box = item.local.detach().to(at::kCPU, entry.dtype).contiguous();
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

void write_boxes(const fs::path& folder, const std::vector<File>& files, const std::vector<Item>& items,
                 const std::vector<std::size_t>& chosen, const HuggingFaceFormat& format) {
  const auto places = places_of(files);
  std::map<std::string, std::unique_ptr<PlacedFile>> open;
  for (const std::size_t index : chosen) {
    const auto* item = std::get_if<TensorItem>(&items.at(index));
    if (!item) continue;
    const auto tensor = format.tensor(item->fqn);
    const auto& place = places.at(tensor.name);
    auto& file = open[place.file];
    if (!file) file = std::make_unique<PlacedFile>(folder / place.file);
    write_box(*file, place.entry, *item, tensor);
  }
  for (auto& [name, file] : open) file->finish();
}

void make_files(const fs::path& folder, const std::vector<File>& files) {
  if (!folder.parent_path().empty()) fs::create_directories(folder.parent_path());
  fs::remove_all(folder);
  fs::create_directory(folder);
  for (const auto& file : files) {
    OutputFile out(folder / file.name);
    out.append(file.header.data(), file.header.size());
    out.finish();
    fs::resize_file(folder / file.name, file.size);
  }
}

std::uint64_t write_index(const fs::path& folder, const std::vector<File>& files, const HuggingFaceFormat& format) {
  std::uint64_t total = 0, on_disk = 0;
  Json map = Json::object();
  for (const auto& file : files) {
    total += file.size - file.header.size();
    on_disk += file.size;
    for (const auto& entry : file.entries) map[entry.name] = file.name;
  }
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  write_file_atomically(folder / "config.json", format.config_json);
  write_file_atomically(folder / kHuggingFaceIndex, index.dump(2) + "\n");
  return on_disk;
}

using Sources = std::map<std::string, std::pair<const MappedSafetensors*, const SafetensorsEntry*>>;

Sources sources_of(const std::vector<std::unique_ptr<MappedSafetensors>>& files) {
  Sources sources;
  for (const auto& file : files) {
    for (const auto& entry : file->entries()) {
      const auto [found, is_new] = sources.emplace(entry.name, std::make_pair(file.get(), &entry));
      if (!is_new)
        throw CheckpointError(entry.name + " is both in " + found->second.first->path().string() + " and in " +
                              file->path().string());
    }
  }
  return sources;
}

std::vector<std::unique_ptr<MappedSafetensors>> open_all(const fs::path& folder) {
  std::vector<fs::path> paths;
  if (fs::is_directory(folder)) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".safetensors") paths.push_back(entry.path());
    }
  }
  if (paths.empty()) throw CheckpointError(folder.string() + " has no *.safetensors file");
  std::sort(paths.begin(), paths.end());
  std::vector<std::unique_ptr<MappedSafetensors>> files;
  for (const auto& path : paths) files.push_back(std::make_unique<MappedSafetensors>(path));
  return files;
}

// Everything that does not fit, before anything is overwritten.
void check_sources(const fs::path& folder, const Sources& sources, const std::vector<Item>& items,
                   const HuggingFaceFormat& format) {
  std::vector<std::string> missing, wrong;
  for (const Item& item : items) {
    const auto* tensor = std::get_if<TensorItem>(&item);
    if (!tensor) continue;
    const auto name = format.tensor(tensor->fqn).name;
    const auto found = sources.find(name);
    if (found == sources.end()) {
      missing.push_back(name + " (" + tensor->fqn + ")");
    } else if (found->second.second->shape != tensor->spec.global_shape) {
      wrong.push_back(name + " is " + dist::shape_text(found->second.second->shape) + ", the model's " + tensor->fqn +
                      " " + dist::shape_text(tensor->spec.global_shape));
    }
  }
  if (missing.empty() && wrong.empty()) return;
  throw CheckpointError(folder.string() + " does not fit the model." +
                        (missing.empty() ? "" : " Missing: " + join(missing, ", ") + ".") +
                        (wrong.empty() ? "" : " Other shapes: " + join(wrong, "; ") + "."));
}

void fill(const TensorItem& item, const MappedSafetensors& file, const SafetensorsEntry& entry,
          const HuggingFaceTensor& tensor) {
  if (item.local.numel() == 0) return;
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < item.spec.local_shape[0]; ++row)
    rows.push_back(their_row(item.spec.offset[0] + row, item.spec.global_shape[0], tensor));
  file.copy_rows(entry, rows, item.spec.offset.size() == 2 ? item.spec.offset[1] : 0, item.local.detach());
}

}  // namespace

std::int64_t rotary_row(std::int64_t row, std::int64_t rows, std::int64_t heads) {
  const std::int64_t size = rows / heads, in_head = row % size;
  return row - in_head + in_head % 2 * (size / 2) + in_head / 2;
}

std::uint64_t save_hugging_face(const fs::path& folder, const std::vector<Item>& items, const HuggingFaceFormat& format,
                                c10::ScalarType dtype, Ranks& ranks, std::uint64_t file_bytes) {
  const std::string action = "exporting " + folder.string() + " failed";
  const fs::path temporary = temporary_folder(folder);
  std::vector<File> files;
  const auto plans = on_every_rank(ranks, action, [&] {
    files = lay_out(items, format, dtype, file_bytes);
    return encode_plan(local_plan(items));
  });
  const std::string assignment = on_rank_0(ranks, action, [&] {
    std::vector<std::vector<PlanEntry>> decoded;
    for (const std::string& bytes : plans) decoded.push_back(decode_plan(bytes));
    make_files(temporary, files);
    return Json(plan_save(decoded).items).dump();
  });
  try {
    on_every_rank(ranks, action, [&] {
      const auto chosen = Json::parse(assignment).at(static_cast<std::size_t>(ranks.rank()));
      write_boxes(temporary, files, items, chosen.get<std::vector<std::size_t>>(), format);
      return std::string();
    });
    return std::stoull(on_rank_0(ranks, action, [&] {
      const auto bytes = write_index(temporary, files, format);
      fsync_folder(temporary);
      put_in_place(folder);
      return std::to_string(bytes);
    }));
  } catch (const CheckpointError&) {
    std::error_code ignored;
    if (ranks.rank() == 0) fs::remove_all(temporary, ignored);
    throw;
  }
}

void load_hugging_face(const fs::path& folder, const std::vector<Item>& items, const HuggingFaceFormat& format,
                       Ranks& ranks) {
  on_every_rank(ranks, "loading " + folder.string() + " failed", [&] {
    const auto files = open_all(folder);
    const auto sources = sources_of(files);
    check_sources(folder, sources, items, format);
    for (const Item& item : items) {
      const auto* tensor = std::get_if<TensorItem>(&item);
      if (!tensor) continue;
      const auto theirs = format.tensor(tensor->fqn);
      const auto& [file, entry] = sources.at(theirs.name);
      fill(*tensor, *file, *entry, theirs);
    }
    return std::string();
  });
}

}  // namespace titan::checkpoint
