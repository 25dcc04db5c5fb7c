// The kinds of datasets, by name: values of training.dataset.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/token_source.h"

namespace titan::data {

std::vector<std::string> dataset_names();

// Opens the dataset of text, kind `name` (upper and lower case are the same) at `path`. Throws DataError on an unknown
// name, listing the known ones, and what the kind itself throws.
std::unique_ptr<TextSource> open_dataset(const std::string& name, const std::filesystem::path& path);

// Any kind, as tokens. `seq_len`: of the windows of those that were tokenized before, "indexed". Throws DataError.
std::shared_ptr<const TokenSource> open_tokens(const std::string& name, const std::filesystem::path& path,
                                               std::shared_ptr<const Tokenizer> tokenizer, std::int64_t seq_len);

// Kinds are known whatever their case.
std::string lower_case(std::string text);

}  // namespace titan::data
