// Turns tokens into text as they arrive, in complete characters.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace titan::generate {

// Returns the text of ids, with U+FFFD for bytes that are not UTF-8: at most three at the end if
// the last character is incomplete.
using Decode = std::function<std::string(std::span<const std::int32_t>)>;

class TextStream {
 public:
  // `before`: the preceding tokens, which are not part of the text but may affect it: SentencePiece
  // drops the space of a piece at the beginning.
  TextStream(Decode decode, std::span<const std::int32_t> before);

  // Returns the text that this token makes certain: complete characters, in UTF-8. May be empty.
  std::string add(std::int32_t id);
  // Returns the rest at the end; an incomplete character becomes U+FFFD.
  std::string finish();

 private:
  std::string take(std::size_t end, const std::string& text);

  Decode decode_;
  std::vector<std::int32_t> window_;  // the last tokens
  std::size_t taken_;                 // bytes of the window's text that were returned or come before
};

}  // namespace titan::generate
