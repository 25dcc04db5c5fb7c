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
  std::optional<ChatTemplate> tool_template;  // of conversations with tools, if there is another one
  std::string text;                           // of the template
  nlohmann::ordered_json special_tokens;      // variables of the template
  std::string fingerprint;                    // changes with those above
};

// Reads the template of `tokenizer`, which was opened at `path`: a folder, or a file in it (chat_files.h).
// `chat_template` names another: a file with the template, or a folder that has one. Special tokens are those that the
// folder names; the tokenizer's BOS and EOS, where it names none, as in transformers' classes for SentencePiece models.
// Throws DataError.
ChatFormat read_chat_format(const std::filesystem::path& path, const Tokenizer& tokenizer,
                            const std::optional<std::filesystem::path>& chat_template);

// Returns the text of the template in `path`, a file or a folder that has one. Throws DataError, std::system_error.
std::string read_chat_template(const std::filesystem::path& path);

// Adds a run's template to the files of its tokenizer, which come from `tokenizer`, as chat_template.jinja, unless that
// folder has the same template in any of its files.
void add_chat_template(const std::string& text, const std::filesystem::path& tokenizer,
                       std::map<std::string, std::string>& files);

}  // namespace titan::data
