// Reading .gz and .zst at random places: through a decompressed copy on disk. Neither format can be entered in the
// middle without an index as large as the data (Zstandard not at all), shuffled documents ask for nothing else, and a
// copy costs memory nothing and survives the process.
#pragma once

#include <filesystem>

namespace titan::data {

// Whether the name ends in .gz or .zst.
bool is_compressed(const std::filesystem::path& path);

// The file with the content of `path` (gzip with any number of members, or Zstandard with any number of frames),
// decompressed on the first call and found again later: by path, size and time of change, so that a changed file gets a
// new copy. Copies lie in $TITAN_DATA_CACHE, else $XDG_CACHE_HOME/titan-train, else $HOME/.cache/titan-train, and may
// be removed when nothing runs. Of several processes that ask at once, one works and the others wait; where the file
// system has no locks, each makes a copy, and the first one stays. Throws DataError, with the line, when the stream is
// cut short or damaged, and when the copy cannot be written.
std::filesystem::path decompressed_copy(const std::filesystem::path& path);

}  // namespace titan::data
