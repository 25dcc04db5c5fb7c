#include "data/io/file_facts.h"

#include <zlib.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "base/utf8.h"
#include "data/io/files.h"

namespace titan::data {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kBlock = 64 << 10, kBlocks = 16, kFewBlocks = 2;
constexpr std::size_t kManyFiles = 1000, kMostFiles = 10'000;

bool is_read_as_a_whole(std::uint64_t size) { return size <= kBlock * kBlocks; }

std::uint32_t checksum_of(const InputFile& file, std::uint64_t blocks) {
  std::uint32_t crc = 0;
  std::vector<char> bytes;
  const auto add = [&](std::uint64_t at, std::uint64_t count) {
    bytes.resize(count);
    file.read_at(at, bytes);
    crc = static_cast<std::uint32_t>(::crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  };
  if (is_read_as_a_whole(file.size())) {
    add(0, file.size());
  } else {
    for (std::uint64_t i = 0; i < blocks; ++i) add((file.size() - kBlock) / (blocks - 1) * i, kBlock);
    add(file.size() - kBlock, kBlock);
  }
  return crc;
}

std::string name_of(const fs::path& path, const fs::path& root) {
  // Escapes bytes that are not UTF-8: JSON and checkpoints store the name.
  return escape_invalid_utf8(path.lexically_relative(folder_of(root)).string());
}

FileFacts sum_of(const std::vector<fs::path>& files, const fs::path& root) {
  FileFacts sum{.name = counted(std::ssize(files), "file")};
  for (const fs::path& path : files) {
    const std::uint64_t size = fs::file_size(path);
    const std::string text = name_of(path, root) + " " + std::to_string(size) + "\n";
    sum.size += size;
    sum.checksum =
        static_cast<std::uint32_t>(::crc32_z(sum.checksum, reinterpret_cast<const Bytef*>(text.data()), text.size()));
  }
  return sum;
}

std::string difference(const FileFacts& before, const FileFacts& now) {
  if (before.size != now.size)
    return now.name + " had " + with_thousands(static_cast<std::int64_t>(before.size)) + " bytes and has " +
           with_thousands(static_cast<std::int64_t>(now.size));
  if (before.checksum != now.checksum) return now.name + " has other content of the same size";
  if (!is_read_as_a_whole(now.size) && before.changed_ns != now.changed_ns)
    return now.name + " has been written to since (its time of change is another)";
  return "";
}

}  // namespace

std::vector<FileFacts> facts_of(const std::vector<fs::path>& files, const fs::path& root) {
  if (files.size() > kMostFiles) return {sum_of(files, root)};
  std::vector<FileFacts> out;
  for (const fs::path& path : files) {
    const InputFile file(path);
    out.push_back({name_of(path, root), file.size(), file.stamp().changed_ns,
                   checksum_of(file, files.size() > kManyFiles ? kFewBlocks : kBlocks)});
  }
  return out;
}

nlohmann::ordered_json to_json(const std::vector<FileFacts>& files) {
  auto json = nlohmann::ordered_json::array();
  for (const auto& [name, size, changed_ns, checksum] : files) json.push_back({name, size, changed_ns, checksum});
  return json;
}

std::vector<FileFacts> file_facts_from_json(const nlohmann::ordered_json& json) {
  std::vector<FileFacts> out;
  for (const auto& each : json)
    out.push_back({each.at(0).get<std::string>(), each.at(1).get<std::uint64_t>(), each.at(2).get<std::int64_t>(),
                   each.at(3).get<std::uint32_t>()});
  return out;
}

std::string file_differences(const std::vector<FileFacts>& before, const std::vector<FileFacts>& now) {
  constexpr std::size_t kShown = 3;
  std::vector<std::string> out;
  std::map<std::string, const FileFacts*> there;
  for (const FileFacts& file : before) there[file.name] = &file;
  for (const FileFacts& file : now) {
    const auto found = there.find(file.name);
    const std::string text = found == there.end() ? file.name + " was not there" : difference(*found->second, file);
    if (found != there.end()) there.erase(found);
    if (!text.empty()) out.push_back(text);
  }
  for (const auto& [name, file] : there) out.push_back(name + " is gone");
  if (out.empty()) return "";
  const std::size_t count = out.size();
  out.resize(std::min(count, kShown));
  return join(out, "; ") + (count > kShown ? "; and " + std::to_string(count - kShown) + " more" : "");
}

std::string facts_to_text(const std::vector<std::vector<FileFacts>>& datasets) {
  auto json = nlohmann::ordered_json::array();
  for (const auto& files : datasets) json.push_back(to_json(files));
  return json.dump();
}

std::string differences_of_texts(const std::string& before, const std::string& now) {
  const auto there = nlohmann::ordered_json::parse(before), here = nlohmann::ordered_json::parse(now);
  if (there.size() != here.size()) return "other datasets";
  for (std::size_t i = 0; i < here.size(); ++i)
    if (auto text = file_differences(file_facts_from_json(there[i]), file_facts_from_json(here[i])); !text.empty())
      return text;
  return "";
}

}  // namespace titan::data
