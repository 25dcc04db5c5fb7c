// UTF-8, code point by code point.
#pragma once

#include <string>
#include <string_view>

namespace titan::data {

// The code point at `text[at]`, and moves `at` behind it. `text` must be valid.
char32_t next_code_point(std::string_view text, std::size_t& at);

// The code point that ends before `text[end]`; `end` > 0.
char32_t previous_code_point(std::string_view text, std::size_t end);

void append_utf8(std::string& text, char32_t point);

// Every maximal ill-formed sequence becomes one U+FFFD, as in Python's bytes.decode(errors="replace").
std::string replace_invalid_utf8(std::string_view text);

// Text as every tokenizer takes it: valid UTF-8, made so with replace_invalid_utf8() where it is not. Copies only then;
// the view is good as long as this object and the given text.
class ValidText {
 public:
  explicit ValidText(std::string_view text);
  ValidText(const ValidText&) = delete;
  ValidText& operator=(const ValidText&) = delete;
  std::string_view view() const { return view_; }

 private:
  std::string repaired_;
  std::string_view view_;
};

}  // namespace titan::data
