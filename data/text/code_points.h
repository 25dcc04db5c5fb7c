// UTF-8, code point by code point.
#pragma once

#include <string>
#include <string_view>

namespace titan::data {

// Returns the code point at `text[at]` and moves `at` past it. `text` must be valid.
char32_t next_code_point(std::string_view text, std::size_t& at);

// Returns the code point that ends before `text[end]`; `end` > 0.
char32_t previous_code_point(std::string_view text, std::size_t end);

void append_utf8(std::string& text, char32_t point);

// Replaces every maximal ill-formed sequence by one U+FFFD, as Python's bytes.decode(errors="replace") does.
std::string replace_invalid_utf8(std::string_view text);

// Valid UTF-8 for a tokenizer: the given text, or a copy made by replace_invalid_utf8() if that is not valid. The view
// is valid as long as this object and the given text.
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
