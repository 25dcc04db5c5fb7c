// The chat template of a Hugging Face folder, and the variables that its tokenizer's files set.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace titan::data {

struct ChatTemplateText {
  std::string text;
  std::string name;  // the file, and the key in it, for messages
};

struct ChatFiles {
  std::map<std::string, ChatTemplateText> templates;  // by name: "default", "tool_use"; empty if there are none
  // Object of special tokens by name ("bos_token": "<s>"): what ChatOptions::variables needs.
  nlohmann::ordered_json special_tokens = nlohmann::ordered_json::object();

  // Returns the template that transformers uses: "tool_use" for conversations with tools if there is one, else
  // "default". Throws DataError if there is none, saying where templates are looked for.
  const ChatTemplateText& choose(bool with_tools) const;

  std::filesystem::path folder;
};

// Reads chat_template.jinja and additional_chat_templates/*.jinja; if there are none, `chat_template` of
// tokenizer_config.json (text, or a list of {"name", "template"}); if that is not there either, chat_template.json.
// Special tokens are those of tokenizer_config.json, and of special_tokens_map.json if the former has no
// `added_tokens_decoder`, as in transformers. Throws DataError for files that cannot be read or have another form.
ChatFiles read_chat_files(const std::filesystem::path& folder);

}  // namespace titan::data
