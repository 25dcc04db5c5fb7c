#include "checkpoint/io/checksums.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/error.h"
#include "base/fs.h"
#include "base/json_error.h"
#include "base/limits/parse_json.h"
#include "base/run_layout.h"
#include "checkpoint/io/crc32.h"
#include "checkpoint/io/read_error.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr std::uint64_t kReadBlock = 1 << 20;  // still in cache when it is checksummed
constexpr std::uintmax_t kLongest = 64 << 20;  // an entry takes about 70 bytes

std::uint32_t parse_crc(const std::string& text) {
  if (text.size() != 8 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    throw CheckpointError("\"" + text + "\" is not a checksum of 8 hexadecimal digits");
  return static_cast<std::uint32_t>(std::stoul(text, nullptr, 16));
}

Checksums parse(const Json& json) {
  if (json.at("format") != kFormat) throw CheckpointError("its format is " + json.at("format").dump() + ", expected 1");
  if (json.at("algorithm") != "crc32") throw CheckpointError("its algorithm is not crc32");
  Checksums checksums;
  checksums.save_id = json.at("save_id").get<std::string>();
  for (const auto& [name, file] : json.at("files").items()) {
    if (name.empty() || name.find('/') != std::string::npos)
      throw CheckpointError(name + " is not a file of the folder");
    if (!file.at("size").is_number_unsigned())
      throw CheckpointError("the size of " + name + " is not a natural number");
    checksums.files[name] = {file.at("size").get<std::uint64_t>(), parse_crc(file.at("crc32").get<std::string>())};
  }
  return checksums;
}

}  // namespace

FileChecksum checksum_of(std::string_view bytes) { return {bytes.size(), crc32(0, bytes.data(), bytes.size())}; }

void write_checksums(const fs::path& folder, const Checksums& checksums) {
  Json files = Json::object();
  for (const auto& [name, file] : checksums.files) files[name] = {{"size", file.size}, {"crc32", crc32_text(file.crc)}};
  const Json json = {{"format", kFormat}, {"algorithm", "crc32"}, {"save_id", checksums.save_id}, {"files", files}};
  write_file_atomically(folder / kChecksumsFile, json.dump(1) + "\n");
}

std::optional<Checksums> read_checksums(const fs::path& folder) {
  const fs::path path = folder / kChecksumsFile;
  if (!is_there(path)) return std::nullopt;
  try {
    if (size_of(path).value_or(0) > kLongest) throw CheckpointError("it is too long");
    return parse(parse_json<Json>(read_whole(path)));
  } catch (const ReadError&) {
    throw;
  } catch (const std::exception& problem) {
    throw CheckpointError(path.string() + " is damaged: " + json_error_text(problem.what()) +
                          ". Remove it to read the checkpoint without its checksums");
  }
}

std::vector<std::string> wrong_sizes(const fs::path& folder, const Checksums& checksums) {
  std::vector<std::string> wrong;
  for (const auto& [name, expected] : checksums.files) {
    const auto size = size_of(folder / name);
    if (!size) {
      wrong.push_back(name + " is missing");
    } else if (*size != expected.size) {
      wrong.push_back(name + " has " + std::to_string(*size) + " bytes, " + kChecksumsFile + " says " +
                      std::to_string(expected.size));
    }
  }
  return wrong;
}

std::string compare_checksum(const std::string& name, std::uint32_t found, const FileChecksum& expected) {
  if (found == expected.crc) return "";
  return name + " has the checksum " + crc32_text(found) + ", " + kChecksumsFile + " says " + crc32_text(expected.crc) +
         ": it was changed or damaged after it was written";
}

std::vector<std::string> changed_texts(const fs::path& folder) {
  std::vector<std::string> changed;
  const auto checksums = read_checksums(folder);
  if (!checksums) return changed;
  for (const auto& [name, expected] : checksums->files) {
    const std::string ending = fs::path(name).extension();
    const bool is_text =
        name != layout::kMetadataFile && ending != ".distcp" && ending != ".safetensors" && ending != ".pt";
    if (!is_text || !is_file(folder / name)) continue;
    std::string fault = compare_checksum(name, checksum_of(read_whole(folder / name)).crc, expected);
    if (!fault.empty()) changed.push_back(std::move(fault));
  }
  return changed;
}

std::uint32_t crc_of_range(const InputFile& file, std::uint64_t begin, std::uint64_t size) {
  std::vector<char> block(std::min(kReadBlock, size));
  std::uint32_t crc = 0;
  for (std::uint64_t done = 0; done < size; done += block.size()) {
    const std::uint64_t count = std::min<std::uint64_t>(block.size(), size - done);
    file.read(begin + done, block.data(), count);
    crc = crc32(crc, block.data(), count);
  }
  return crc;
}

std::vector<Piece> join_pieces(std::vector<Piece> pieces) {
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.begin, a.size, a.crc) < std::tie(b.begin, b.size, b.crc);
  });
  std::vector<Piece> joined;
  const Piece* previous = nullptr;
  for (const Piece& piece : pieces) {
    const bool again = previous != nullptr && previous->begin == piece.begin && previous->size == piece.size &&
                       previous->crc == piece.crc;
    previous = &piece;
    if (again) continue;
    if (!joined.empty() && joined.back().begin + joined.back().size == piece.begin) {
      Piece& before = joined.back();
      before.crc = crc32_combine(before.crc, piece.crc, piece.size);
      before.size += piece.size;
    } else {
      joined.push_back(piece);
    }
  }
  return joined;
}

}  // namespace titan::checkpoint
