// Dataset kind "jsonl": one JSON object per line, with its document in a string, by default "text"; blank lines are
// skipped.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/sources/text_source.h"

namespace titan::data {

// Opens files whose documents are in the field `text_key`. `path` is a file, or a folder whose *.json and *.jsonl files
// are read recursively; names may also end in .gz or .zst (see decompress.h). Opening finds the lines by reading all
// files, or in a cached index (line_index.h).
std::unique_ptr<TextSource> open_jsonl_files(const std::filesystem::path& path, const std::string& text_key = "text");

// Makes the line index of a dataset if it would be cached and is missing. Skips a dataset with compressed files: the
// first start makes their copies.
void prepare_jsonl_files(const std::filesystem::path& path);

// True if the name ends in an extension of such files.
bool is_named_as_jsonl(const std::filesystem::path& path);

// Returns the files that open_jsonl_files() opens, without reading any. Throws DataError if there are none.
std::vector<std::filesystem::path> list_jsonl_files(const std::filesystem::path& path);

}  // namespace titan::data
