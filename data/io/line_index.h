// Finds where the lines of text files begin, by reading them once, and keeps that for later starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "data/io/files.h"

namespace titan::data {

// A file to look for lines in, open, with the path that its content has on disk.
struct IndexedFile {
  std::filesystem::path path;
  const InputFile* file;
};

struct LineIndex {
  // Offsets of the lines that are not blank, in their file, behind blanks and a byte order mark; file after file.
  std::span<const std::uint64_t> starts;
  // ends[i] is the number of lines up to the end of file i.
  std::vector<std::size_t> ends;
  std::shared_ptr<const void> memory;  // that holds `starts`
};

// Bytes of files from which on their index is kept.
inline constexpr std::uint64_t kWorthKeeping = std::uint64_t{16} << 20;

// Returns the index of `files`. Of fewer bytes than `worth_keeping` they are read. Else the index is looked for in the cache
// folder (data/io/cache.h), by path, size and time of change of each file, and is made there if it is not there yet; it is
// mapped, so that it costs later starts no time, and the ranks of a machine no memory of their own. Where no index can be
// kept, a warning says so and the files are read at each start. Throws DataError for a file that cannot be read.
LineIndex index_lines(const std::vector<IndexedFile>& files, std::uint64_t worth_keeping = kWorthKeeping);

}  // namespace titan::data
