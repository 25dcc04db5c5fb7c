#include "data/conversations/chat_samples.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/fs.h"
#include "data/chat/chat_files.h"
#include "data/conversations/answers.h"
#include "data/conversations/conversation.h"
#include "data/sources/token_marks.h"

namespace titan::data {

namespace fs = std::filesystem;

namespace {

fs::path folder_of_tokenizer(const fs::path& tokenizer) {
  std::error_code error;
  return fs::is_directory(tokenizer, error) ? tokenizer : tokenizer.parent_path();
}

ChatTemplateText choose_template(const ChatFiles& files, const std::optional<fs::path>& chat_template) {
  if (!chat_template) return files.choose(/*with_tools=*/false);
  std::error_code error;
  if (fs::is_directory(*chat_template, error)) return read_chat_files(*chat_template).choose(/*with_tools=*/false);
  return {read_file(*chat_template), chat_template->string()};
}

// Returns how many tokens of `all`, the whole text's, are those of the text's first `bytes` bytes alone.
std::size_t tokens_up_to(std::size_t bytes, const std::string& text, const std::vector<std::int32_t>& all,
                         const Tokenizer& tokenizer) {
  if (bytes == text.size()) return all.size();
  std::vector<std::int32_t> ids;
  tokenizer.encode(std::string_view(text).substr(0, bytes), ids);
  return static_cast<std::size_t>(std::ranges::mismatch(ids, all).in1 - ids.begin());
}

}  // namespace

ChatFormat read_chat_format(const fs::path& tokenizer, const std::optional<fs::path>& chat_template) {
  const ChatFiles files = read_chat_files(folder_of_tokenizer(tokenizer));
  const ChatTemplateText text = choose_template(files, chat_template);
  return {.chat_template = ChatTemplate::parse(text.text, text.name),
          .special_tokens = files.special_tokens,
          .fingerprint = files.special_tokens.dump() + text.text};
}

ChatSamples::ChatSamples(const fs::path& path, ChatFormat format, std::shared_ptr<const Tokenizer> tokenizer)
    : lines_(path), format_(std::move(format)), tokenizer_(std::move(tokenizer)) {
  if (tokenizer_->vocab_size() > kMostIds)
    throw DataError("the tokenizer has ids above " + std::to_string(kMostIds) + ", which chats cannot have");
}

std::vector<std::int32_t> ChatSamples::tokens(std::int64_t index) const {
  const auto record = lines_.object<nlohmann::ordered_json>(index);
  TrainedText found;
  try {
    found = find_answers(format_.chat_template, format_.special_tokens, parse_conversation(record));
  } catch (const DataError& error) {
    throw BadRecord(lines_.where(index) + ": " + error.what());
  }
  std::vector<std::int32_t> ids;
  tokenizer_->encode(found.text, ids);
  std::vector<std::int32_t> marked = ids;
  for (std::int32_t& id : marked) id |= kNoLabel;
  for (const ChatTemplate::Range& answer : found.answers) {
    const std::size_t begin = tokens_up_to(answer.begin, found.text, ids, *tokenizer_);
    const std::size_t end = tokens_up_to(answer.end, found.text, ids, *tokenizer_);
    for (std::size_t i = begin; i < end; ++i) marked[i] = ids[i];
  }
  if (!marked.empty()) marked.front() |= kBegins;
  return marked;
}

}  // namespace titan::data
