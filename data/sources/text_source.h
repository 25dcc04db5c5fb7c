// Documents by number: what a dataset is to the orders that read it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"

namespace titan::data {

// One record of a dataset is unusable; the others are not touched by it. What training.on_bad_record = "skip" skips.
class BadRecord : public DataError {
 public:
  using DataError::DataError;
};

// A map-style dataset. Const calls may run on several threads at once.
class TextSource {
 public:
  virtual ~TextSource() = default;

  virtual std::int64_t num_documents() const = 0;

  // The text of document `index` in [0, num_documents()), valid UTF-8. Throws BadRecord naming file and line when the
  // record is at fault, DataError when it cannot be read.
  virtual std::string document(std::int64_t index) const = 0;
};

// The documents [start, start + count) of one rank.
struct DocumentBlock {
  std::int64_t start = 0;
  std::int64_t count = 0;
};

// TorchTitan's split of `num_documents` over `dp_size` ranks: contiguous blocks, of which the first num_documents %
// dp_size have one document more.
DocumentBlock contiguous_block(std::int64_t num_documents, std::int64_t dp_rank, std::int64_t dp_size);

// Dataset kind "text": one document a file. `path` is a file, or a folder that is read recursively;
// names may end in .gz or .zst (decompress.h).
std::unique_ptr<TextSource> open_text_files(const std::filesystem::path& path);

// The files that it opens, without reading any. Throws DataError where there are none, and for one whose name
// says that it is not text (.bz2, .parquet and the like).
std::vector<std::filesystem::path> list_text_files(const std::filesystem::path& path);

}  // namespace titan::data
