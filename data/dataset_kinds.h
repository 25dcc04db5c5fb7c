// The kinds of datasets, by name: values of training.dataset.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/sources/token_source.h"

namespace titan::data {

// Opens the dataset of text, kind `name` (upper and lower case are the same) at `path`. `text_key` names the field of JSON
// lines that holds the document. Throws DataError on an unknown
// name, listing the known ones, and what the kind itself throws.
std::unique_ptr<TextSource> open_dataset(const std::string& name, const std::filesystem::path& path,
                                         const std::string& text_key = "text");

// Returns the files of a dataset, in the order in which they are read, without reading any. Throws DataError.
std::vector<std::filesystem::path> list_dataset(const std::string& name, const std::filesystem::path& path);

// Returns the kind that the names of the files at `path` tell: "jsonl" where any ends as those of that kind do, else
// "text". Throws DataError where there are no files.
std::string kind_by_names(const std::filesystem::path& path);

// Returns what the names of the files at `path` make doubtful, a sentence each: files of a folder that the kind `name`
// does not read, and JSON lines that are read as text. Throws DataError where there are no files of that kind.
std::vector<std::string> doubtful_names(const std::string& name, const std::filesystem::path& path);

// Makes what a start makes once of large files (the index of their lines), where that reads the files and nothing else.
// Throws DataError.
void prepare_dataset(const std::string& name, const std::filesystem::path& path);

// What can be said of a dataset before it is read: whether its files are there and, where it was tokenized before, by
// the tokenizer with the fingerprint `tokenizer` (tokenizer.h). Throws DataError.
void check_dataset(const std::string& name, const std::filesystem::path& path, const std::string& tokenizer);

// Any kind, as tokens. `seq_len`: of the windows of those that were tokenized before, "indexed". Throws DataError.
std::shared_ptr<const TokenSource> open_tokens(const std::string& name, const std::filesystem::path& path,
                                               std::shared_ptr<const Tokenizer> tokenizer, std::int64_t seq_len,
                                               const std::string& text_key = "text");

}  // namespace titan::data
