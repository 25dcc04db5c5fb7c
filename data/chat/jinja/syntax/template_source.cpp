#include "data/chat/jinja/syntax/template_source.h"

#include <algorithm>

#include "base/utf8.h"
#include "data/chat/jinja/values/python_text.h"

namespace titan::data::jinja {

Source::Source(std::string name, std::string_view text) : name_(std::move(name)) {
  if (const auto bad = find_invalid_utf8(text))
    throw DataError(name_ + ": the byte at offset " + std::to_string(*bad) +
                    " is not UTF-8; save the template as UTF-8");
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      text_ += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      text_ += text[i];
    }
  }
  if (text_.ends_with('\n')) text_.pop_back();
}

DataError Source::error(std::size_t at, const std::string& message) const {
  const std::string_view before = std::string_view(text_).substr(0, at);
  const auto line = 1 + std::ranges::count(before, '\n');
  const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  const std::size_t column = 1 + count_characters(before.substr(line_start));
  return DataError(name_ + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + message);
}

}  // namespace titan::data::jinja
