#include "data/conversations/chat_samples.h"

#include <algorithm>
#include <span>
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

// Finds places in a text whose tokens are known, each by encoding the text up to there: a token goes across a place if
// the text that ends there has another one. What a special token ends is not encoded again, since text behind it has
// the same tokens whatever is in front.
class TokenPlaces {
 public:
  TokenPlaces(const std::string& text, const std::vector<std::int32_t>& all, const Tokenizer& tokenizer)
      : text_(text), all_(all), tokenizer_(tokenizer) {}

  // Returns the place of a byte. Calls are cheap in the order of the text.
  TokenPlace of(std::size_t bytes) {
    if (bytes == text_.size()) return {all_.size(), false};
    if (bytes < bytes_) bytes_ = tokens_ = 0;
    std::vector<std::int32_t> ids;
    tokenizer_.encode_rendered(text_.substr(bytes_, bytes - bytes_), ids);
    const auto rest = all_.subspan(tokens_);
    const auto same = static_cast<std::size_t>(std::ranges::mismatch(ids, rest).in1 - ids.begin());
    const TokenPlace place{tokens_ + same, same < ids.size() && same < rest.size()};
    if (same == ids.size()) begin_at_special_token(bytes, place.before);
    return place;
  }

 private:
  // Lets later calls encode from the token that ends at a place on, if that token is special.
  void begin_at_special_token(std::size_t bytes, std::size_t tokens) {
    if (tokens == 0 || !tokenizer_.is_special(all_[tokens - 1])) return;
    const std::string special = tokenizer_.special_text(all_[tokens - 1]);
    if (!text_.substr(0, bytes).ends_with(special)) return;
    bytes_ = bytes - special.size();
    tokens_ = tokens - 1;
  }

  std::string_view text_;
  std::span<const std::int32_t> all_;
  const Tokenizer& tokenizer_;
  std::size_t bytes_ = 0, tokens_ = 0;  // where calls begin to encode
};

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
    const Conversation conversation = parse_conversation(record);
    const bool takes_tools = format_.tool_template && !conversation.tools.is_null();
    found = find_answers(takes_tools ? *format_.tool_template : format_.chat_template, format_.special_tokens,
                         conversation);
  } catch (const DataError& error) {
    throw BadRecord(lines_.where(index) + ": " + error.what());
  }
  std::vector<std::int32_t> ids;
  tokenizer_->encode_rendered(found.text, ids);
  Sample out{.tokens = ids};
  std::vector<std::int32_t>& marked = out.tokens;
  for (std::int32_t& id : marked) id |= kNoLabel;
  TokenPlaces places(found.text, ids, *tokenizer_);
  for (const ChatTemplate::Range& answer : found.answers) {
    const TokenPlace begin = places.of(answer.begin), end = places.of(answer.end);
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
