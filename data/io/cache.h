// Cached files made from data files and reused by later starts: decompressed copies, line indexes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "data/io/files.h"

namespace titan::data {

// Returns the folder of the cached files: $TITAN_DATA_CACHE, else $XDG_CACHE_HOME/titan-train, else
// $HOME/.cache/titan-train. They may be removed when nothing runs. Throws DataError if none of the three is set.
std::filesystem::path cache_folder();

// Returns a key of the file at `path` that changes with its path, size and modification time.
std::uint64_t key_of(const std::filesystem::path& path, const FileStamp& stamp);

// Returns the path of `name` in the cache folder; if it does not exist, `write` makes it at the path that it is given.
// If several processes ask at once, one writes and the others wait; without file locks each writes, and the first
// finished file is kept. Throws DataError if the folder cannot be made or written, and what `write` throws.
std::filesystem::path made_once(const std::string& name,
                                const std::function<void(const std::filesystem::path&)>& write);

// A file that is being written. Every function throws DataError with the reason if it fails.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(std::span<const char> bytes);
  // Call sync() last: the bytes are on the disk when it returns.
  void sync();

 private:
  std::filesystem::path path_;
  int descriptor_;
};

}  // namespace titan::data
