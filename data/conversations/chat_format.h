// How conversations become text.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "data/chat/chat_template.h"
#include "data/tokenizer/tokenizer.h"

namespace titan::data {

struct ChatFormat {
  ChatTemplate chat_template;
  nlohmann::ordered_json special_tokens;  // variables of the template
  std::string fingerprint;                // changes with the two above
};

// Reads the template of `tokenizer`, which was opened at `path`: a folder, or a file in it (chat_files.h).
// `chat_template` names another: a file with the template, or a folder that has one. Special tokens are those that the
// folder names; the tokenizer's BOS and EOS, where it names none, as in transformers' classes for SentencePiece models.
// Throws DataError.
ChatFormat read_chat_format(const std::filesystem::path& path, const Tokenizer& tokenizer,
                            const std::optional<std::filesystem::path>& chat_template);

// Adds the template that chat.chat_template names, if it names one, to the files of a model's export. If it cannot be
// read any more, warns, and the export has none of the run's.
void add_chat_template(const std::optional<std::string>& chat_template, std::map<std::string, std::string>& files);

}  // namespace titan::data
