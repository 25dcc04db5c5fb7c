// Texts that the model continues during training. The application encodes them: the engine has no tokenizer.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace titan {

struct Prompt {
  std::string text;
  std::vector<std::int32_t> ids;  // at least one: BOS if the tokenizer has it, then the text's tokens
};

struct Prompts {
  std::vector<Prompt> prompts;
  std::vector<std::int64_t> stop_ids;  // each ends a text
  // Returns the text of ids, without special tokens.
  std::function<std::string(std::span<const std::int32_t>)> decode;
};

}  // namespace titan
