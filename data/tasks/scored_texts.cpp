#include "data/tasks/scored_texts.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/chat/jinja/values/python_text.h"
#include "data/text/code_points.h"

namespace titan::data {
namespace {

std::optional<std::int32_t> mark_of(const Tokenizer& tokenizer) {
  const auto bos = tokenizer.bos_id();
  return bos ? bos : tokenizer.eos_id();
}

}  // namespace

TextScoring::TextScoring(const Tokenizer& tokenizer, std::int64_t max_length)
    : tokenizer_(tokenizer), max_length_(max_length) {
  if (const auto mark = mark_of(tokenizer)) bos_text_ = tokenizer.decode(std::span(&*mark, 1));
}

// A text that begins with the mark in words gets no other one.
std::vector<std::int32_t> TextScoring::encode(const std::string& text) const {
  std::vector<std::int32_t> ids;
  if (!bos_text_.empty() && text.starts_with(bos_text_)) {
    tokenizer_.encode(text, ids);
  } else {
    tokenizer_.encode_marked(text, tokenizer_.usual_marks(), ids);
  }
  return ids;
}

std::int32_t TextScoring::first_token(const std::string& place) const {
  if (const auto mark = mark_of(tokenizer_)) return *mark;
  throw DataError(place + ": the tokenizer has neither BOS nor EOS, after which the first token could be scored");
}

ScoredText TextScoring::after_context(const std::string& place, std::string context, std::string answer,
                                      bool& is_cut) const {
  std::vector<std::int32_t> before, whole;
  if (context.empty()) {
    tokenizer_.encode(answer, whole);
    const std::int32_t first = first_token(place);
    if (whole.empty() || whole.front() != first) whole.insert(whole.begin(), first);
    before = {first};
  } else {
    const std::size_t kept = jinja::strip(context, jinja::Side::kRight).size();
    answer.insert(0, context, kept);
    context.resize(kept);
    before = encode(context);
    whole = encode(context + answer);
  }
  if (before.empty()) throw DataError(place + ": the text before the answers has no token");
  const auto num_scored = static_cast<std::int64_t>(whole.size()) - static_cast<std::int64_t>(before.size());
  if (num_scored < 1) throw DataError(place + ": the answer \"" + answer + "\" has no token");
  if (num_scored > max_length_)
    throw DataError(place + ": an answer has " + std::to_string(num_scored) + " tokens, and the model takes at most " +
                    std::to_string(max_length_) + " at once");
  const auto most = static_cast<std::size_t>(max_length_ + 1);
  is_cut = whole.size() > most;
  if (is_cut) whole.erase(whole.begin(), whole.end() - static_cast<std::ptrdiff_t>(most));
  return {std::move(whole), num_scored};
}

std::vector<ScoredText> TextScoring::windows(const std::string& place, const std::string& text) const {
  std::vector<std::int32_t> ids = encode(text);
  const auto count = static_cast<std::int64_t>(ids.size());
  if (count > 0) ids.insert(ids.begin(), first_token(place));
  std::vector<ScoredText> out;
  // The token that is scored i-th is ids[i].
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t end = std::min(count, done + max_length_);
    const std::int64_t begin = std::max<std::int64_t>(0, end - max_length_);
    out.push_back({{ids.begin() + begin, ids.begin() + end + 1}, end - done});
    done = end;
  }
  return out;
}

std::int64_t count_words(const std::string& text) {
  std::int64_t words = 1;
  bool in_space = false;
  for (std::size_t at = 0; at < text.size();) {
    const bool is_space = jinja::is_python_space(next_code_point(text, at));
    words += is_space && !in_space ? 1 : 0;
    in_space = is_space;
  }
  return words;
}

}  // namespace titan::data
