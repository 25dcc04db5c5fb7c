// titan.checksums.json: the size and CRC-32 of every file of a checkpoint, in addition to PyTorch's or Hugging Face's
// format. Optional: checkpoints of other programs do not have it. See FORMAT.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/io/file.h"

namespace titan::checkpoint {

inline constexpr const char* kChecksumsFile = "titan.checksums.json";

struct FileChecksum {
  std::uint64_t size = 0;
  std::uint32_t crc = 0;
  bool operator==(const FileChecksum&) const = default;
};

struct Checksums {
  std::string save_id;  // id of the save that they belong to; empty if the format has none
  std::map<std::string, FileChecksum> files;
  bool operator==(const Checksums&) const = default;
};

FileChecksum checksum_of(std::string_view bytes);

// Writes the file durably. Throws std::system_error.
void write_checksums(const std::filesystem::path& folder, const Checksums& checksums);

// Returns nullopt if the folder has none. Throws CheckpointError for a file that write_checksums() does not write, and
// ReadError.
std::optional<Checksums> read_checksums(const std::filesystem::path& folder);

// Returns one line per file that is missing or has another size. Throws ReadError.
std::vector<std::string> wrong_sizes(const std::filesystem::path& folder, const Checksums& checksums);

// Returns "__0_0.distcp has the checksum 0a1b2c3d, titan.checksums.json says ...", or "" if they are equal.
std::string compare_checksum(const std::string& name, std::uint32_t found, const FileChecksum& expected);

// Returns one line per small file of the folder (configuration, tokenizer; not weights or .metadata) that differs from
// its checksum; files that are missing do not count. Empty for a folder without checksums. Throws as read_checksums()
// does, and ReadError.
std::vector<std::string> changed_texts(const std::filesystem::path& folder);

// Returns the CRC-32 of bytes [begin, begin + size) of a file, read in small blocks. Throws CheckpointError if it ends
// earlier.
std::uint32_t crc_of_range(const InputFile& file, std::uint64_t begin, std::uint64_t size);

// Joins adjacent pieces and drops duplicates (read by replicas). The result is sorted by `begin`.
std::vector<Piece> join_pieces(std::vector<Piece> pieces);

}  // namespace titan::checkpoint
