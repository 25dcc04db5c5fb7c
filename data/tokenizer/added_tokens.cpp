#include "data/tokenizer/added_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "data/text/code_points.h"
#include "data/text/unicode_category.h"

namespace titan::data {
namespace {

std::uint64_t edge(std::uint32_t node, char byte) {
  return static_cast<std::uint64_t>(node) << 8 | static_cast<unsigned char>(byte);
}

bool is_single_word(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0 && contains(word_ranges(), previous_code_point(text, begin))) return false;
  std::size_t at = end;
  return end == text.size() || !contains(word_ranges(), next_code_point(text, at));
}

// Returns the start of the white space that ends before `end`.
std::size_t skip_space_back(std::string_view text, std::size_t end) {
  while (end > 0) {
    const char32_t point = previous_code_point(text, end);
    if (!contains(whitespace_ranges(), point)) break;
    std::string encoded;
    append_utf8(encoded, point);
    end -= encoded.size();
  }
  return end;
}

std::size_t skip_space(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    std::size_t next = at;
    if (!contains(whitespace_ranges(), next_code_point(text, next))) break;
    at = next;
  }
  return at;
}

}  // namespace

void TextMatcher::add(std::string_view text, std::int32_t value) {
  std::uint32_t node = 0;
  for (const char byte : text) {
    const auto [child, is_new] = children_.try_emplace(edge(node, byte), static_cast<std::uint32_t>(values_.size()));
    if (is_new) values_.push_back(-1);
    node = child->second;
  }
  if (text.empty() || values_[node] >= 0) {
    throw DataError("two added tokens are spelled alike, or one is empty: \"" + std::string(text) + "\"");
  }
  values_[node] = value;
  begins_[static_cast<unsigned char>(text[0])] = true;
}

std::optional<TextMatcher::Match> TextMatcher::find(std::string_view text, std::size_t from) const {
  if (values_.size() == 1) return std::nullopt;
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!begins_[static_cast<unsigned char>(text[begin])]) continue;
    std::optional<Match> longest;
    std::uint32_t node = 0;
    for (std::size_t at = begin; at < text.size(); ++at) {
      const auto child = children_.find(edge(node, text[at]));
      if (child == children_.end()) break;
      node = child->second;
      if (values_[node] >= 0) longest = {begin, at + 1, values_[node]};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

AddedTokens::AddedTokens(IdOfToken model_ids, std::int64_t model_size, Normalize normalize)
    : model_ids_(std::move(model_ids)), model_size_(model_size), normalize_(std::move(normalize)) {}

std::optional<std::int32_t> AddedTokens::id_of(const std::string& content) const {
  const auto found = ids_.find(content);
  return found != ids_.end() ? std::optional(found->second) : model_ids_(content);
}

bool AddedTokens::is_special(std::int32_t id) const {
  const auto text = texts_.find(id);
  return text != texts_.end() && special_contents_.contains(text->second);
}

void AddedTokens::add(std::span<const AddedToken> tokens) {
  auto next_id = static_cast<std::int32_t>(model_size_);
  if (!tokens_.empty()) next_id = std::max(next_id, tokens_.rbegin()->first + 1);
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    const auto known = id_of(token.content);
    const std::int32_t id = known ? *known : next_id++;
    ids_[token.content] = id;
    if (token.special) special_contents_.insert(token.content);
    tokens_[id] = token;
    // A token that was once normalized still decodes to its normalized text if it is added again as not normalized.
    if (token.normalized || !texts_.contains(id))
      texts_[id] = token.normalized ? normalize_(token.content) : token.content;
  }
  rebuild();
}

void AddedTokens::rebuild() {
  raw_ = TextMatcher();
  normalized_ = TextMatcher();
  for (const auto& [id, token] : tokens_) {
    if (token.normalized) {
      normalized_.add(texts_.at(id), id);
    } else {
      raw_.add(token.content, id);
    }
  }
}

void AddedTokens::split(const TextMatcher& matcher, std::string_view text, std::vector<Piece>& pieces) const {
  std::size_t done = 0;  // the text before it has been appended
  std::size_t from = 0;  // matches do not overlap, taken or not
  while (const auto match = matcher.find(text, from)) {
    from = match->end;
    const AddedToken& token = tokens_.at(match->value);
    if (token.single_word && !is_single_word(text, match->begin, match->end)) continue;
    std::size_t begin = match->begin;
    if (token.lstrip) begin = std::max(skip_space_back(text, begin), done);
    if (done < begin) pieces.push_back({text.substr(done, begin - done)});
    done = std::max(done, token.rstrip ? skip_space(text, match->end) : match->end);
    // A white-space token is empty if the token before it has included it.
    if (begin < done) pieces.push_back({text.substr(begin, done - begin), match->value});
  }
  if (done < text.size()) pieces.push_back({text.substr(done)});
}

}  // namespace titan::data
