// Dataset kind "jsonl": one document per line, a string of a JSON object, by default "text"; blank lines are skipped.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/sources/text_source.h"

namespace titan::data {

// `text_key` names the field of the documents. `path` is a file, or a folder whose *.json and *.jsonl files are read recursively, each of which may also end in .gz
// or .zst (see decompress.h). Opening finds the
// lines: from an index that is kept (line_index.h), for which all files are read once.
std::unique_ptr<TextSource> open_jsonl_files(const std::filesystem::path& path, const std::string& text_key = "text");

// Makes the index of their lines if it would be kept and is not there yet. Leaves out a dataset with compressed files, whose
// copies the first start makes.
void prepare_jsonl_files(const std::filesystem::path& path);

// Returns whether the name ends as those of such files do.
bool is_named_as_jsonl(const std::filesystem::path& path);

// The files that it opens, without reading any. Throws DataError where there are none.
std::vector<std::filesystem::path> list_jsonl_files(const std::filesystem::path& path);

}  // namespace titan::data
