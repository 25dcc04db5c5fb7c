// Tokens become text while they come, never half a character of it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace titan::generate {

// The text of ids, with U+FFFD for bytes that are not UTF-8: at most three at the end for a character whose last
// bytes are missing.
using Decode = std::function<std::string(std::span<const std::int32_t>)>;

class TextStream {
 public:
  // `before`: the tokens that come first and are not part of the text. How a token reads may depend on them: a piece of
  // SentencePiece's loses its space at the beginning.
  TextStream(Decode decode, std::span<const std::int32_t> before);

  // The text that is certain with this token: whole characters, in UTF-8. May be empty.
  std::string add(std::int32_t id);
  // What is left at the end, a character that was not completed as U+FFFD.
  std::string finish();

 private:
  std::string take(std::size_t end, const std::string& text);

  Decode decode_;
  std::vector<std::int32_t> window_;  // the last tokens
  std::size_t taken_;                 // bytes of the window's text that were given out, or come before
};

}  // namespace titan::generate
