// titan.checksums.json: the size and the CRC-32 of every file of a checkpoint, beside what PyTorch or Hugging Face
// knows of. Optional: the checkpoints of other programs have none. See FORMAT.md.
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
  std::string save_id;  // of the save that they belong to; "" where the format has no such thing
  std::map<std::string, FileChecksum> files;
  bool operator==(const Checksums&) const = default;
};

FileChecksum checksum_of(std::string_view bytes);

// Durable when it returns. Throws std::system_error.
void write_checksums(const std::filesystem::path& folder, const Checksums& checksums);

// Nothing when the folder has none. Throws CheckpointError for a file that is not what write_checksums() writes.
std::optional<Checksums> read_checksums(const std::filesystem::path& folder);

// The files that are missing or have another size, a line each.
std::vector<std::string> wrong_sizes(const std::filesystem::path& folder, const Checksums& checksums);

// "__0_0.distcp has the checksum 0a1b2c3d, titan.checksums.json says ...", or "" when they are equal.
std::string compare_checksum(const std::string& name, std::uint32_t found, const FileChecksum& expected);

// Of bytes [begin, begin + size) of a file, read in small blocks. Throws CheckpointError when it ends before.
std::uint32_t crc_of_range(const InputFile& file, std::uint64_t begin, std::uint64_t size);

// Joins pieces that follow one another, of equal ones (which replicas read) keeps one. Sorted by `begin`.
std::vector<Piece> join_pieces(std::vector<Piece> pieces);

}  // namespace titan::checkpoint
