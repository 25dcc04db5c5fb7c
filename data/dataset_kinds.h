// The kinds of datasets, by name: values of training.dataset.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/conversations/chat_packs.h"
#include "data/sources/token_source.h"

namespace titan::data {

// Opens the text dataset of kind `name` (case-insensitive) at `path`. `text_key` names the field of a JSON line that
// holds the document. Throws DataError for an unknown name, listing the known ones, and what the kind itself throws.
std::unique_ptr<TextSource> open_dataset(const std::string& name, const std::filesystem::path& path,
                                         const std::string& text_key = "text");

// Returns the files of a dataset, in the order in which they are read, without reading any. Throws DataError.
std::vector<std::filesystem::path> list_dataset(const std::string& name, const std::filesystem::path& path);

// Returns the kind that the file names at `path` suggest: "jsonl" if any name has an extension of that kind, else
// "text". Throws DataError if there are no files.
std::string kind_by_names(const std::filesystem::path& path);

// Returns doubts about the file names at `path`, one sentence each: files of a folder that kind `name` does not read,
// and JSON lines that are read as text. Throws DataError if there are no files of that kind.
std::vector<std::string> doubtful_names(const std::string& name, const std::filesystem::path& path);

// Makes the cached index of a dataset's lines if its files are large and not compressed. Throws DataError.
void prepare_dataset(const std::string& name, const std::filesystem::path& path);

// Checks without reading the data that the files exist and, if they are tokenized shards, that they were made with the
// tokenizer of fingerprint `tokenizer` (tokenizer.h). Throws DataError.
void check_dataset(const std::string& name, const std::filesystem::path& path, const std::string& tokenizer);

// Opens a dataset of any kind as tokens. The items of the kinds "indexed" and "chat" are windows of `seq_len` + 1
// tokens. `chat`: for the latter. Throws DataError, ConfigError.
std::shared_ptr<const TokenSource> open_tokens(const std::string& name, const std::filesystem::path& path,
                                               std::shared_ptr<const Tokenizer> tokenizer, std::int64_t seq_len,
                                               const std::string& text_key, const ChatDataset& chat);

}  // namespace titan::data
