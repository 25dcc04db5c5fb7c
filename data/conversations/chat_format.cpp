#include "data/conversations/chat_format.h"

#include <spdlog/spdlog.h>

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
  return {.chat_template = ChatTemplate::parse(text.text, text.name),
          .special_tokens = files.special_tokens,
          .fingerprint = files.special_tokens.dump() + text.text};
}

void add_chat_template(const std::optional<std::string>& chat_template, std::map<std::string, std::string>& files) {
  if (!chat_template) return;
  try {
    files["chat_template.jinja"] = read_template(*chat_template).text;
  } catch (const DataError& error) {
    spdlog::warn("the export has no chat template of the run: {} (chat.chat_template). Copy it there as {}",
                 error.what(), "chat_template.jinja");
  }
}

}  // namespace titan::data
