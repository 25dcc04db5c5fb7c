// Random access to .gz and .zst files through a decompressed copy on disk. Neither format can be entered in the middle
// without an index as large as the data (Zstandard not at all), and shuffled documents need that. A copy takes no
// memory and survives the process.
#pragma once

#include <filesystem>

namespace titan::data {

// True if the name ends in .gz or .zst.
bool is_compressed(const std::filesystem::path& path);

// Returns the file with the decompressed content of `path` (gzip with any number of members, or Zstandard with any
// number of frames). The first call makes it; later calls find it by path, size and modification time, so that a
// changed file gets a new copy. Copies are in $TITAN_DATA_CACHE, else $XDG_CACHE_HOME/titan-train, else
// $HOME/.cache/titan-train, and may be removed when nothing runs. If several processes ask at once, one decompresses
// and the others wait; without file locks each makes a copy, and the first one is kept. Throws DataError, with the
// line, if the stream is cut short or damaged, and if the copy cannot be written.
std::filesystem::path decompressed_copy(const std::filesystem::path& path);

}  // namespace titan::data
