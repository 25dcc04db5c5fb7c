#include "data/sources/text_source.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "data/io/decompress.h"
#include "data/io/files.h"

namespace titan::data {

namespace fs = std::filesystem;

namespace {

// Extensions of files that are not text: reading them as text would fail or give garbage.
const std::array<fs::path, 13> kNoText = {".bz2", ".xz",  ".lz4",     ".zip",   ".7z",          ".tar", ".tgz",
                                          ".rar", ".npy", ".parquet", ".arrow", ".safetensors", ".pt"};

class TextFiles final : public TextSource {
 public:
  explicit TextFiles(const fs::path& path) : files_(list_text_files(path)) {
    for (fs::path& file : files_) {
      names_.push_back(file);
      if (is_compressed(file)) file = decompressed_copy(file);
      stamps_.push_back(InputFile(file).stamp());
    }
    const bool all_empty = std::ranges::all_of(stamps_, [](const FileStamp& stamp) { return stamp.size == 0; });
    if (all_empty) throw DataError("no dataset in " + path.string() + ": every file in it is empty");
  }

  std::int64_t num_documents() const override { return static_cast<std::int64_t>(files_.size()); }

  std::string document(std::int64_t index) const override {
    const fs::path& path = files_.at(static_cast<std::size_t>(index));
    const InputFile file(path);
    const FileStamp& stamp = stamps_[static_cast<std::size_t>(index)];
    if (file.stamp() != stamp) throw_changed(path, stamp, file.stamp());
    std::string text(file.size(), '\0');
    file.read_at(0, text);
    if (const auto bad = find_invalid_utf8(text)) {
      const auto line = 1 + std::ranges::count(std::string_view(text).substr(0, *bad), '\n');
      throw BadRecord(names_[static_cast<std::size_t>(index)].string() + ":" + std::to_string(line) + ": byte " +
                      std::to_string(*bad) +
                      " is not valid UTF-8. Convert the file to UTF-8 or take it out of the dataset.");
    }
    return text;
  }

 private:
  std::vector<fs::path> files_;    // decompressed
  std::vector<fs::path> names_;    // as they were given
  std::vector<FileStamp> stamps_;  // when the dataset was opened
};

}  // namespace

DocumentBlock contiguous_block(std::int64_t num_documents, std::int64_t dp_rank, std::int64_t dp_size) {
  TITAN_CHECK(dp_size > 0 && dp_rank >= 0 && dp_rank < dp_size,
              "rank " + std::to_string(dp_rank) + " of " + std::to_string(dp_size));
  const std::int64_t div = num_documents / dp_size;
  const std::int64_t mod = num_documents % dp_size;
  return {.start = div * dp_rank + std::min(dp_rank, mod), .count = div + (dp_rank < mod ? 1 : 0)};
}

std::vector<fs::path> list_text_files(const fs::path& path) {
  auto files = list_files(path, {});
  for (const fs::path& file : files) {
    if (std::ranges::count(kNoText, file.extension()) == 0) continue;
    throw DataError(file.string() +
                    " is not text by its name: files of kind \"text\" may end in .gz or .zst, and not in " +
                    file.extension().string() + ". Decompress or convert it, or take it out of the dataset");
  }
  return files;
}

std::unique_ptr<TextSource> open_text_files(const fs::path& path) { return std::make_unique<TextFiles>(path); }

}  // namespace titan::data
