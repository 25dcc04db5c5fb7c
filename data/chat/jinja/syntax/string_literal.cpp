#include "data/chat/jinja/syntax/string_literal.h"

#include "data/text/code_points.h"

namespace titan::data::jinja {
namespace {

class Unescaper {
 public:
  Unescaper(const Source& source, std::size_t from, std::size_t to)
      : source_(source), text_(std::string_view(source.text()).substr(0, to)), at_(from) {}

  std::string run() {
    while (at_ < text_.size()) {
      if (text_[at_] == '\\') {
        read_escape();
      } else {
        out_ += text_[at_++];
      }
    }
    return std::move(out_);
  }

 private:
  void read_escape() {
    constexpr std::string_view kLetters = "abfnrtv\\'\"";
    constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    const std::size_t start = at_++;
    const char c = text_[at_];  // the lexer has made sure that a character follows
    if (const std::size_t known = kLetters.find(c); known != std::string_view::npos) {
      ++at_;
      out_ += kMeanings[known];
    } else if (c == '\n') {
      ++at_;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      ++at_;
      append(start, read_digits(start, c == 'x' ? 2 : c == 'u' ? 4 : 8));
    } else if (c >= '0' && c <= '7') {
      char32_t point = 0;
      for (int i = 0; i < 3 && at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '7'; ++i)
        point = point * 8 + static_cast<char32_t>(text_[at_++] - '0');
      append(start, point);
    } else if (c == 'N') {
      throw source_.error(start, "the escape \\N{...} is not supported; write the character itself");
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      throw source_.error(start, "a backslash before a character that is not ASCII is not supported; write \\\\");
    } else {
      out_ += '\\';  // Python keeps unknown escapes
    }
  }

  char32_t read_digits(std::size_t start, int count) {
    char32_t point = 0;
    for (int i = 0; i < count; ++i, ++at_) {
      const char c = at_ < text_.size() ? text_[at_] : ' ';
      const char lower = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9') {
        point = point * 16 + static_cast<char32_t>(c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        point = point * 16 + static_cast<char32_t>(lower - 'a' + 10);
      } else {
        throw source_.error(start, "this escape needs " + std::to_string(count) + " hexadecimal digits");
      }
    }
    return point;
  }

  void append(std::size_t start, char32_t point) {
    if (point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF))
      throw source_.error(start, "this escape is not a character; write the character itself, or \\U and 8 digits");
    append_utf8(out_, point);
  }

  const Source& source_;
  std::string_view text_;
  std::size_t at_;
  std::string out_;
};

}  // namespace

Value read_string_literal(const Source& source, std::size_t from, std::size_t to) {
  return Value::text(Unescaper(source, from, to).run());
}

}  // namespace titan::data::jinja
