// Documents by number: the interface of text datasets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"

namespace titan::data {

// Error for one unusable record of a dataset; the other records are usable. training.on_bad_record = "skip" skips it.
class BadRecord : public DataError {
 public:
  using DataError::DataError;
};

// A map-style dataset. Const calls may run on several threads at once.
class TextSource {
 public:
  virtual ~TextSource() = default;

  virtual std::int64_t num_documents() const = 0;

  // Returns the text of document `index` in [0, num_documents()), valid UTF-8. Throws BadRecord naming file and line if
  // the record is at fault, DataError if it cannot be read.
  virtual std::string document(std::int64_t index) const = 0;
};

// The documents [start, start + count) of one rank.
struct DocumentBlock {
  std::int64_t start = 0;
  std::int64_t count = 0;
};

// Splits `num_documents` over `dp_size` ranks as TorchTitan does: into contiguous blocks; the first num_documents %
// dp_size blocks have one document more.
DocumentBlock contiguous_block(std::int64_t num_documents, std::int64_t dp_rank, std::int64_t dp_size);

// Opens dataset kind "text": one document per file. `path` is a file, or a folder that is read recursively; names may
// end in .gz or .zst (decompress.h).
std::unique_ptr<TextSource> open_text_files(const std::filesystem::path& path);

// Returns the files that open_text_files() opens, without reading any. Throws DataError if there are none, or if a name
// shows that the file is not text (.bz2, .parquet and the like).
std::vector<std::filesystem::path> list_text_files(const std::filesystem::path& path);

}  // namespace titan::data
