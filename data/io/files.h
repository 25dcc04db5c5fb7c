// Lists folders of data and reads files at positions. Every failure is a DataError that names the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace titan::data {

// Returns the regular files below `root` (links are followed) whose names end in one of `extensions` (all if empty),
// sorted bytewise by relative path, so that every machine and locale sees the same order. Skips hidden files and
// folders (.name). If `root` is a file, returns it whatever its name. `root` may also be a shell pattern that matches
// files with these endings, and folders, which are read as above. Throws DataError if `root` does not exist, if nothing
// is found, saying what the folder holds, and for a dangling link that would be one of the files.
std::vector<std::filesystem::path> list_files(const std::filesystem::path& root,
                                              std::span<const std::string> extensions);

// Returns the folder below which list_files(root) finds its files: `root` itself if it is a folder, else its nearest
// existing parent.
std::filesystem::path folder_of(const std::filesystem::path& root);

// Describes the content of a folder: "3 entries: a.bin, b.gz, c" with at most 8 names, or "nothing".
std::string describe_folder(const std::filesystem::path& folder);

// Size and modification time of a file, to detect changes.
struct FileStamp {
  std::uint64_t size = 0;
  std::int64_t changed_ns = 0;  // time of the last change

  bool operator==(const FileStamp&) const = default;
};

// Throws DataError, which says that the file at `path` has changed from `before` to `now` during the run.
[[noreturn]] void throw_changed(const std::filesystem::path& path, const FileStamp& before, const FileStamp& now);

// A file open for reading. Const calls may run on several threads at once. It uses positioned reads and not a memory
// map: a map of a file that shrinks kills the process.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  InputFile(InputFile&& other) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  // The values when the file was opened.
  std::uint64_t size() const { return stamp_.size; }
  const FileStamp& stamp() const { return stamp_; }

  // Fills `out` from `offset` on. Throws DataError if the file has changed since it was opened.
  void read_at(std::uint64_t offset, std::span<char> out) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  FileStamp stamp_;
};

}  // namespace titan::data
