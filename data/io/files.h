// Reading corpora: listing folders, positioned reads, UTF-8 checks. Every failure is a DataError that names the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace titan::data {

// The regular files below `root` (links are followed) whose name ends in one of `extensions` (all, when empty), sorted
// by relative path bytewise, so that every machine and locale sees the same order. Hidden files and folders (.name) are
// left out. `root` may be one file, which is then the answer whatever its name, or a pattern of the shell, whose matches are
// files with these endings and folders that are read as above. Throws DataError when there is no
// `root`, when nothing is found, saying what the folder holds, and for a link to nothing that would be one of the
// files.
std::vector<std::filesystem::path> list_files(const std::filesystem::path& root,
                                              std::span<const std::string> extensions);

// Returns the folder below which list_files(root) finds its files: `root` itself, or what stands before a file's name or
// before the first pattern.
std::filesystem::path folder_of(const std::filesystem::path& root);

// "3 entries: a.bin, b.gz, c", at most 8 names; "nothing".
std::string describe_folder(const std::filesystem::path& folder);

// What tells that a file was changed.
struct FileStamp {
  std::uint64_t size = 0;
  std::int64_t changed_ns = 0;  // time of the last change

  bool operator==(const FileStamp&) const = default;
};

// Throws DataError: the file at `path` had `before` when training started and has `now`.
[[noreturn]] void throw_changed(const std::filesystem::path& path, const FileStamp& before, const FileStamp& now);

// A file open for reading. Const calls may run on several threads at once. Positioned reads rather than a memory map:
// a map of a file that shrinks kills the process.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  InputFile(InputFile&& other) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  // When it was opened.
  std::uint64_t size() const { return stamp_.size; }
  const FileStamp& stamp() const { return stamp_; }

  // Fills `out` from `offset` on. Throws DataError when the file was changed since it was opened.
  void read_at(std::uint64_t offset, std::span<char> out) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  FileStamp stamp_;
};

}  // namespace titan::data
