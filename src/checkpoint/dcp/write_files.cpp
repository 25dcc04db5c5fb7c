#include "checkpoint/dcp/write_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "checkpoint/format/archive.h"
#include "checkpoint/io/file.h"
#include "checkpoint/io/on_threads.h"

namespace titan::checkpoint {
namespace {

using Json = nlohmann::json;

std::uint64_t weight(const Item& item) {
  const auto* tensor = std::get_if<TensorItem>(&item);
  return tensor == nullptr ? 0 : tensor->local.nbytes();
}

// Distributes items over files: the largest first, each to the smallest file so far. Files keep the order of `chosen`.
std::vector<std::vector<std::size_t>> deal(const std::vector<Item>& items, const std::vector<std::size_t>& chosen,
                                           std::size_t num_files) {
  std::vector<std::size_t> by_weight(chosen.size());
  std::iota(by_weight.begin(), by_weight.end(), 0);
  const auto weight_at = [&](std::size_t position) { return weight(items.at(chosen[position])); };
  std::stable_sort(by_weight.begin(), by_weight.end(),
                   [&](std::size_t a, std::size_t b) { return weight_at(a) > weight_at(b); });
  std::vector<std::vector<std::size_t>> files(num_files);
  std::vector<std::uint64_t> bytes(num_files, 0);
  for (const std::size_t position : by_weight) {
    const bool is_value = std::holds_alternative<ValueItem>(items.at(chosen[position]));
    const auto lightest = is_value ? bytes.begin() : std::min_element(bytes.begin(), bytes.end());
    *lightest += weight_at(position);
    files[static_cast<std::size_t>(lightest - bytes.begin())].push_back(position);
  }
  for (auto& file : files) std::sort(file.begin(), file.end());
  for (std::size_t i = files.size(); i-- > 1;)
    if (files[i].empty()) files.erase(files.begin() + static_cast<std::ptrdiff_t>(i));
  return files;
}

void write_one(const std::filesystem::path& folder, const std::vector<Item>& items,
               const std::vector<std::size_t>& chosen, WrittenFile& written) {
  OutputFile file(folder / written.name);
  for (const std::size_t position : written.items) {
    const Item& item = items.at(chosen[position]);
    if (const auto* tensor = std::get_if<TensorItem>(&item)) {
      written.lengths.push_back(write_tensor_archive(file, tensor->local));
    } else {
      written.lengths.push_back(write_value_archive(file, std::get<ValueItem>(item).value));
    }
  }
  written.checksum = {file.position(), file.crc()};
  file.finish();
}

}  // namespace

std::vector<WrittenFile> write_files(const std::filesystem::path& folder, int rank, const std::vector<Item>& items,
                                     const std::vector<std::size_t>& chosen, int num_files) {
  std::vector<WrittenFile> files;
  for (auto& positions : deal(items, chosen, static_cast<std::size_t>(std::max(num_files, 1)))) {
    WrittenFile file;
    file.name = "__" + std::to_string(rank) + "_" + std::to_string(files.size()) + ".distcp";
    file.items = std::move(positions);
    files.push_back(std::move(file));
  }
  on_threads(files.size(), files.size(), [&](std::size_t i) { write_one(folder, items, chosen, files[i]); });
  return files;
}

std::string encode_written(const std::vector<WrittenFile>& files) {
  Json json = Json::array();
  for (const WrittenFile& file : files)
    json.push_back({file.name, file.checksum.size, file.checksum.crc, file.items, file.lengths});
  std::string bytes;
  Json::to_msgpack(json, bytes);
  return bytes;
}

std::vector<WrittenFile> decode_written(const std::string& bytes) {
  std::vector<WrittenFile> files;
  for (const auto& json : Json::from_msgpack(bytes)) {
    WrittenFile file{
        json.at(0).get<std::string>(), {json.at(1).get<std::uint64_t>(), json.at(2).get<std::uint32_t>()}, {}, {}};
    json.at(3).get_to(file.items);
    json.at(4).get_to(file.lengths);
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace titan::checkpoint
