#include "data/conversations/chat_samples.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "data/conversations/answers.h"
#include "data/conversations/conversation.h"
#include "data/sources/token_marks.h"

namespace titan::data {

namespace fs = std::filesystem;

namespace {

// Returns how many tokens of `all`, the whole text's, are those of the text's first `bytes` bytes alone.
std::size_t tokens_up_to(std::size_t bytes, const std::string& text, const std::vector<std::int32_t>& all,
                         const Tokenizer& tokenizer) {
  if (bytes == text.size()) return all.size();
  std::vector<std::int32_t> ids;
  tokenizer.encode_rendered(std::string_view(text).substr(0, bytes), ids);
  return static_cast<std::size_t>(std::ranges::mismatch(ids, all).in1 - ids.begin());
}

}  // namespace

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
  tokenizer_->encode_rendered(found.text, ids);
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
