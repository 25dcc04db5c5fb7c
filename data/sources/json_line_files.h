// Files with one JSON object per line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "data/io/files.h"
#include "data/io/line_index.h"

namespace titan::data {

// Const calls may run on several threads at once.
class JsonLines {
 public:
  // Opens list_jsonl_files(root). Throws DataError, also if there is no line that is not blank.
  explicit JsonLines(const std::filesystem::path& root);

  // Returns the number of lines that are not blank.
  std::int64_t size() const { return static_cast<std::int64_t>(starts_.size()); }

  // Returns the object of line `line` in [0, size()). NaN and Infinity, which Python writes as numbers, become 0.
  // `Json` is nlohmann::json or nlohmann::ordered_json. Throws BadRecord naming file, line and column.
  template <typename Json>
  Json object(std::int64_t line) const;

  // Returns "file:line" for messages.
  std::string where(std::int64_t line) const;

 private:
  struct File {
    std::filesystem::path path;     // as it was given
    std::filesystem::path content;  // decompressed
    InputFile file;                 // open content
    std::size_t end = 0;            // end of its lines in starts_
  };

  const File& file_of(std::size_t line) const;
  std::string read(std::size_t line) const;
  std::string place(std::size_t index, std::int64_t column) const;

  // Newlines before each chunk of a file, and where the line begins that reaches into it. Grows as far as bad records
  // ask for: each of many would otherwise count all lines before it.
  struct Chunk {
    std::int64_t newlines = 0;
    std::uint64_t line_start = 0;
  };
  struct Places {
    std::mutex mutex;
    std::vector<std::vector<Chunk>> chunks;  // by file
  };

  std::vector<File> files_;  // in order
  LineIndex index_;
  std::span<const std::uint64_t> starts_;  // start of every line, in its file
  std::unique_ptr<Places> places_ = std::make_unique<Places>();
};

}  // namespace titan::data
