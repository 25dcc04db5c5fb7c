// Texts that a model continues while it is trained. The application encodes them: the engine knows no tokenizer.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace titan {

struct Prompt {
  std::string text;
  std::vector<std::int32_t> ids;  // at least one: BOS, where the tokenizer has it, and the text's
};

struct Prompts {
  std::vector<Prompt> prompts;
  std::vector<std::int64_t> stop_ids;  // each of them ends a text
  // The text of ids, special tokens left out.
  std::function<std::string(std::span<const std::int32_t>)> decode;
};

}  // namespace titan
