// Exports a tokenizer as Hugging Face's transformers expects it beside a model's weights.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "data/tokenizer/tokenizer.h"
#include "facts/model_naming.h"

namespace titan::data {

// Returns true if the folder has a file from which make_tokenizer() makes a tokenizer.
bool has_tokenizer(const std::filesystem::path& folder);

// Returns name -> content of a tokenizer's files in `path`, a folder or one of them. Throws std::system_error.
std::map<std::string, std::string> tokenizer_files(const std::filesystem::path& path);

// Returns the tokenizer's files in `path`, from which make_tokenizer() made `tokenizer`, and its BOS and EOS. If `path`
// has only a tokenizer.model, makes a tokenizer.json with the same ids from it; if that is not possible, logs that the
// tokenizer is exported unchanged. Throws DataError or std::system_error for files that cannot be read.
HuggingFaceTokenizer export_tokenizer(const std::filesystem::path& path, const Tokenizer& tokenizer);

}  // namespace titan::data
