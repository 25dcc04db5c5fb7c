// Conversations as tokens, with marks on those that the model learns to write.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/conversations/chat_format.h"
#include "data/sources/json_line_files.h"
#include "data/tokenizer/tokenizer.h"

namespace titan::data {

// Const calls may run on several threads at once.
class ChatSamples {
 public:
  // Opens JSON lines (jsonl_source.h), each with a conversation (chat_record.h). Throws DataError.
  ChatSamples(const std::filesystem::path& path, ChatFormat format, std::shared_ptr<const Tokenizer> tokenizer);

  std::int64_t size() const { return lines_.size(); }
  std::string where(std::int64_t index) const { return lines_.where(index); }  // "file:line"
  const Tokenizer& tokenizer() const { return *tokenizer_; }

  struct Sample {
    std::vector<std::int32_t> tokens;
    // An answer begins within a token: before an answer that it generates, a model sees other tokens than in training.
    bool splits_token = false;
    bool ends_open = false;  // an answer has no special token: a model does not learn to end it
  };

  // Returns the tokens of a conversation's text, with the marks of token_marks.h: the first one begins a sample, and
  // those outside the assistant's answers do not count as labels. A token that an answer and other text share counts to
  // the answer, as in transformers. Throws BadRecord naming file and line.
  Sample read(std::int64_t index) const;

 private:
  JsonLines lines_;
  ChatFormat format_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace titan::data
