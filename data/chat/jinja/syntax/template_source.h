// The text of a template and places in it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/error.h"

namespace titan::data::jinja {

class Source {
 public:
  // `name` is what messages call the template, usually its file. Throws DataError for text that is not UTF-8. Line ends
  // become "\n", and one line end at the end is dropped, as Jinja does.
  Source(std::string name, std::string_view text);

  const std::string& text() const { return text_; }

  // Returns the error "NAME:LINE:COLUMN: MESSAGE" for the byte `at` of text(). Columns count characters.
  DataError error(std::size_t at, const std::string& message) const;

 private:
  std::string name_;
  std::string text_;
};

}  // namespace titan::data::jinja
