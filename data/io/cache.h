// Files that are made of data files once and found again by later starts: decompressed copies, indexes of lines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "data/io/files.h"

namespace titan::data {

// Returns the folder that such files lie in: $TITAN_DATA_CACHE, else $XDG_CACHE_HOME/titan-train, else
// $HOME/.cache/titan-train. They may be removed when nothing runs. Throws DataError where none of the three is set.
std::filesystem::path cache_folder();

// Returns a number of the file at `path` that another path, size or time of change gives another value.
std::uint64_t key_of(const std::filesystem::path& path, const FileStamp& stamp);

// Returns `name` in the folder above, which `write` makes at the path it is given if it is not there. Of several processes
// that ask at once one works and the others wait; where the file system has no locks, each makes the file, and the first
// one stays. Throws DataError if it cannot be written, and what `write` throws.
std::filesystem::path made_once(const std::string& name,
                                const std::function<void(const std::filesystem::path&)>& write);

// A file that is being written. Throws DataError with the reason.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(std::span<const char> bytes);
  // Call it last: the bytes are on the disk when it returns.
  void sync();

 private:
  std::filesystem::path path_;
  int descriptor_;
};

}  // namespace titan::data
