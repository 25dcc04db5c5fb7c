// A tokenizer as Hugging Face's transformers wants it beside a model's weights.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "data/tokenizer/tokenizer.h"
#include "facts/model_naming.h"

namespace titan::data {

// Name -> content of a tokenizer's files in `path`, a folder or one of them. Throws std::system_error.
std::map<std::string, std::string> tokenizer_files(const std::filesystem::path& path);

// The tokenizer's files in `path` (what make_tokenizer() took, and what made `tokenizer` of it), and its BOS and EOS.
// Where `path` has a tokenizer.model alone, a tokenizer.json with the same ids is made of it if that can be done; else
// the log says that it is handed on as it is. Throws DataError or std::system_error for files that cannot be read.
HuggingFaceTokenizer export_tokenizer(const std::filesystem::path& path, const Tokenizer& tokenizer);

}  // namespace titan::data
