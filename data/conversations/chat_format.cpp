#include "data/conversations/chat_format.h"

#include <utility>

#include "base/error.h"
#include "base/fs.h"
#include "data/chat/chat_files.h"

namespace titan::data {

namespace fs = std::filesystem;

namespace {

ChatTemplateText read_template(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return read_chat_files(path).choose(/*with_tools=*/false);
  if (!fs::exists(path, error))
    throw DataError(path.string() + ": expected a file with a chat template, or a folder that has one; found neither");
  return {read_file(path), path.string()};
}

void add_if_missing(const char* name, std::optional<std::int32_t> id, const Tokenizer& tokenizer,
                    nlohmann::ordered_json& tokens) {
  if (id && !tokens.contains(name)) tokens[name] = tokenizer.special_text(*id);
}

}  // namespace

ChatFormat read_chat_format(const fs::path& path, const Tokenizer& tokenizer,
                            const std::optional<fs::path>& chat_template) {
  std::error_code error;
  ChatFiles files = read_chat_files(fs::is_directory(path, error) ? path : path.parent_path());
  add_if_missing("bos_token", tokenizer.bos_id(), tokenizer, files.special_tokens);
  add_if_missing("eos_token", tokenizer.eos_id(), tokenizer, files.special_tokens);
  const ChatTemplateText text = chat_template ? read_template(*chat_template) : files.choose(/*with_tools=*/false);
  const ChatTemplateText of_tools = chat_template ? text : files.choose(/*with_tools=*/true);
  ChatFormat format{.chat_template = ChatTemplate::parse(text.text, text.name),
                    .tool_template = std::nullopt,
                    .text = text.text,
                    .special_tokens = files.special_tokens,
                    .fingerprint = files.special_tokens.dump() + text.text};
  if (of_tools.text != text.text) {
    format.tool_template = ChatTemplate::parse(of_tools.text, of_tools.name);
    format.fingerprint += of_tools.text;
  }
  return format;
}

std::string read_chat_template(const fs::path& path) { return read_template(path).text; }

void add_chat_template(const std::string& text, const fs::path& tokenizer, std::map<std::string, std::string>& files) {
  std::error_code error;
  try {
    if (fs::is_directory(tokenizer, error) && read_chat_files(tokenizer).choose(/*with_tools=*/false).text == text)
      return;
  } catch (const DataError&) {  // it has none
  }
  files["chat_template.jinja"] = text;
}

}  // namespace titan::data
