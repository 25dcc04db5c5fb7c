#include <ATen/ATen.h>

#include "base/fs.h"
#include "checkpoint/dcp/checkpoint_io.h"
#include "checkpoint/dcp/metadata.h"
#include "checkpoint/format/archive.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/format/value_pickle.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"

namespace titan::fuzz {
namespace {

namespace fs = std::filesystem;

std::string joined(std::initializer_list<std::string_view> parts) {
  std::string all;
  for (const std::string_view part : parts) all += part;
  return all;
}

// Returns the files of a checkpoint that one process saved: .metadata and the data.
std::pair<std::string, std::string> saved() {
  const MemoryFolder folder;
  OneRank ranks;
  checkpoint::save(folder.path() / "ck", state(0, 1), ranks);
  return {read_file(folder.path() / "ck" / ".metadata"), read_file(folder.path() / "ck" / "__0_0.distcp")};
}

// Returns the content of the record "data.pkl" of an archive.
std::string pickle_in(const fs::path& path) {
  const checkpoint::InputFile file(path);
  const checkpoint::ZipReader archive(file, 0, file.size(), "a seed");
  return archive.read(archive.get("data.pkl"));
}

}  // namespace

Seeds metadata_seeds() {
  Seeds seeds = {{"saved", saved().first}};
  // Two chunks per tensor, as two ranks save it.
  checkpoint::Metadata metadata;
  metadata.order = {"w"};
  metadata.entries["w"] = checkpoint::TensorEntry{
      at::kFloat, {5, 3}, {{{0, 0}, {3, 3}, {"__0_0.distcp", 0, 700}}, {{3, 0}, {2, 3}, {"__1_0.distcp", 0, 700}}}};
  metadata.paths["w"] = {"model", std::int64_t{0}, "w"};
  seeds.emplace_back("two_chunks", checkpoint::encode_metadata(metadata, {{"w", 0}, {"w", 1}}, "ck", "id"));
  return seeds;
}

Seeds distcp_seeds() {
  const MemoryFolder folder;
  const fs::path path = folder.path() / "archive";
  const std::string whole = joined({"f", little_endian(0, 4), little_endian(UINT32_MAX, 4)});
  Seeds seeds;
  for (const auto& item : state(0, 1)) {
    checkpoint::OutputFile out(path);
    const std::string& name = checkpoint::item_fqn(item);
    if (const auto* tensor = std::get_if<checkpoint::TensorItem>(&item)) {
      checkpoint::write_tensor_archive(out, tensor->local);
      out.finish();
      const std::string pickle = pickle_in(path);
      const at::Tensor numbers = tensor->local.contiguous();
      const std::string_view storage(static_cast<const char*>(numbers.const_data_ptr()), numbers.nbytes());
      seeds.emplace_back(joined({"tensor_", name}), joined({"t", little_endian(pickle.size(), 2), pickle, storage}));
    } else {
      const auto& content = std::get<checkpoint::ValueItem>(item).value;
      checkpoint::write_value_archive(out, content);
      out.finish();
      seeds.emplace_back(joined({"value_", name}), joined({"v", checkpoint::pickle_value(content, 2)}));
      seeds.emplace_back(joined({"value_4_", name}), joined({"v", checkpoint::pickle_value(content, 4)}));
    }
    seeds.emplace_back(joined({"file_", name}), joined({whole, read_file(path)}));
  }
  return seeds;
}

Seeds folder_seeds() {
  const auto [metadata, data] = saved();
  Seeds seeds;
  for (int ranks = 1; ranks <= 3; ++ranks)
    seeds.emplace_back(joined({"rank_0_of_", std::to_string(ranks)}),
                       joined({little_endian(static_cast<std::uint64_t>(ranks - 1), 1),
                               little_endian(metadata.size(), 2), metadata, data}));
  return seeds;
}

Seeds safetensors_seeds() {
  std::vector<checkpoint::SafetensorsEntry> entries = {
      {"model.w", at::kFloat, {5, 3}}, {"b", at::kBFloat16, {6}}, {"empty", at::kLong, {0, 4}}};
  const std::string header = checkpoint::make_safetensors_header(entries);
  const std::string numbers(60 + 12, '?');
  const std::string_view json = std::string_view(header).substr(8);
  return {{"file", joined({"f", header, numbers})},
          {"header", joined({"h", json, std::string_view("\0", 1), numbers})}};
}

}  // namespace titan::fuzz
