// Writes one rank's part of a save: its items in one file, or in several in parallel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/dcp/item.h"
#include "checkpoint/io/checksums.h"

namespace titan::checkpoint {

struct WrittenFile {
  std::string name;
  FileChecksum checksum;
  std::vector<std::size_t> items;      // in file order: positions in `chosen`
  std::vector<std::uint64_t> lengths;  // bytes of their archives, which follow each other without gaps
};

// Writes items[chosen[0]], items[chosen[1]], … to `folder`/__<rank>_0.distcp, __<rank>_1.distcp, …: at most `num_files`
// files of about equal size, one thread per file; values go into the first. Everything is on disk when it returns.
// Throws CheckpointError.
std::vector<WrittenFile> write_files(const std::filesystem::path& folder, int rank, const std::vector<Item>& items,
                                     const std::vector<std::size_t>& chosen, int num_files);

std::string encode_written(const std::vector<WrittenFile>& files);
std::vector<WrittenFile> decode_written(const std::string& bytes);

}  // namespace titan::checkpoint
