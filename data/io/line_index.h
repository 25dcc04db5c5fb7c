// Finds where the lines of text files begin by reading them once, and caches the result for later starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "data/io/files.h"

namespace titan::data {

// An open file whose lines are to be found, with the path of its content on disk.
struct IndexedFile {
  std::filesystem::path path;
  const InputFile* file;
};

struct LineIndex {
  // Offsets in the file of lines that are not blank, after leading blanks and a byte order mark; file after file.
  std::span<const std::uint64_t> starts;
  // ends[i] is the number of lines up to the end of file i.
  std::vector<std::size_t> ends;
  std::shared_ptr<const void> memory;  // owns `starts`
};

// Least size of all files, in bytes, for which the index is cached.
inline constexpr std::uint64_t kWorthKeeping = std::uint64_t{16} << 20;

// Returns the index of `files`. Reads them if they have fewer than `worth_keeping` bytes. Otherwise looks for the index
// in the cache folder (data/io/cache.h), by path, size and modification time of each file, and makes it there if it is
// missing. A cached index is mapped: it costs later starts no time, and the ranks of a machine share its memory. If no
// index can be cached, logs a warning, and every start reads the files. Throws DataError if a file cannot be read.
LineIndex index_lines(const std::vector<IndexedFile>& files, std::uint64_t worth_keeping = kWorthKeeping);

}  // namespace titan::data
