#include "data/conversations/chat_samples.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "data/conversations/answers.h"
#include "data/conversations/chat_record.h"
#include "data/sources/token_marks.h"

namespace titan::data {

namespace fs = std::filesystem;

namespace {

// A place in a text, in tokens of the full text.
struct TokenPlace {
  std::size_t before = 0;  // tokens that end before it
  bool is_within = false;  // the next token begins before it
};

// Finds the place `bytes` by encoding the text up to there. A token goes across it if that has another token.
TokenPlace place_of(std::size_t bytes, const std::string& text, const std::vector<std::int32_t>& all,
                    const Tokenizer& tokenizer) {
  if (bytes == text.size()) return {all.size(), false};
  std::vector<std::int32_t> ids;
  tokenizer.encode_rendered(std::string_view(text).substr(0, bytes), ids);
  const auto same = static_cast<std::size_t>(std::ranges::mismatch(ids, all).in1 - ids.begin());
  return {same, same < ids.size() && same < all.size()};
}

}  // namespace

ChatSamples::ChatSamples(const fs::path& path, ChatFormat format, std::shared_ptr<const Tokenizer> tokenizer)
    : lines_(path), format_(std::move(format)), tokenizer_(std::move(tokenizer)) {
  if (tokenizer_->vocab_size() > kMostIds)
    throw DataError("the tokenizer has ids above " + std::to_string(kMostIds) + ", which chats cannot have");
}

ChatSamples::Sample ChatSamples::read(std::int64_t index) const {
  const auto record = lines_.object<nlohmann::ordered_json>(index);
  TrainedText found;
  try {
    found = find_answers(format_.chat_template, format_.special_tokens, parse_conversation(record));
  } catch (const DataError& error) {
    throw BadRecord(lines_.where(index) + ": " + error.what());
  }
  std::vector<std::int32_t> ids;
  tokenizer_->encode_rendered(found.text, ids);
  Sample out{.tokens = ids};
  std::vector<std::int32_t>& marked = out.tokens;
  for (std::int32_t& id : marked) id |= kNoLabel;
  for (const ChatTemplate::Range& answer : found.answers) {
    const TokenPlace begin = place_of(answer.begin, found.text, ids, *tokenizer_);
    const TokenPlace end = place_of(answer.end, found.text, ids, *tokenizer_);
    const std::size_t behind = end.before + (end.is_within ? 1 : 0);
    const auto is_special = [&](std::int32_t id) { return tokenizer_->is_special(id); };
    out.splits_token |= begin.is_within;
    out.ends_open |=
        begin.before < behind && std::none_of(ids.begin() + static_cast<std::ptrdiff_t>(begin.before),
                                              ids.begin() + static_cast<std::ptrdiff_t>(behind), is_special);
    for (std::size_t i = begin.before; i < behind; ++i) marked[i] = ids[i];
  }
  if (!marked.empty()) marked.front() |= kBegins;
  return out;
}

}  // namespace titan::data
