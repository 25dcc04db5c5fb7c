// Turns texts into the tokens that a model is scored on, as lm-evaluation-harness 0.4 does for models of transformers'
// (api/model.py and models/huggingface.py there).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "contract/evaluation_task.h"
#include "data/tokenizer/tokenizer.h"

namespace titan::data {

class TextScoring {
 public:
  // `max_length`: tokens that the model takes at once. The tokenizer must outlive this.
  TextScoring(const Tokenizer& tokenizer, std::int64_t max_length);

  // Returns the text that is scored for an answer after a context. White space at the end of the context moves to the
  // answer, and both are encoded together, so that the first token of the answer may begin with it. Without a context
  // the text begins with BOS, or EOS if there is none. A text that is too long loses tokens from its left end; then
  // `is_cut` becomes true. Throws DataError, beginning with `place`, if the answer has no token or is longer than
  // `max_length`, or the context has no token.
  ScoredText after_context(const std::string& place, std::string context, std::string answer, bool& is_cut) const;

  // Returns windows of a text that together score each of its tokens once, the first one after BOS, or EOS if there is
  // none. Each window has max_length tokens before its last, as far as there are so many. The last window may therefore
  // overlap with the one before it, and scores only what is left. Throws DataError, beginning with `place`, if the
  // tokenizer has neither mark.
  std::vector<ScoredText> windows(const std::string& place, const std::string& text) const;

 private:
  std::vector<std::int32_t> encode(const std::string& text) const;
  std::int32_t first_token(const std::string& place) const;

  const Tokenizer& tokenizer_;
  std::int64_t max_length_;
  std::string bos_text_;  // of the token that a text without context begins with; "" if there is none
};

// Returns the number of words that the text has between runs of white space; an empty one counts at either end that is
// white space, as in len(re.split(r"\s+", text)) of Python.
std::int64_t count_words(const std::string& text);

}  // namespace titan::data
