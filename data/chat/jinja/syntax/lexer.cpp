#include "data/chat/jinja/syntax/lexer.h"

#include <algorithm>
#include <array>

#include "data/chat/jinja/syntax/string_literal.h"
#include "data/chat/jinja/values/python_text.h"
#include "data/text/code_points.h"

namespace titan::data::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

// Sign before or after a tag: "-" strips white space, "+" keeps it.
enum class Sign { kNone, kMinus, kPlus };

class Lexer {
 public:
  explicit Lexer(const Source& source) : source_(source), text_(source.text()) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) read_data();
    add(TokenKind::kEnd, text_.size());
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::size_t at, const std::string& message) const { throw source_.error(at, message); }

  bool looking_at(std::string_view what) const { return std::string_view(text_).substr(at_).starts_with(what); }

  void add(TokenKind kind, std::size_t at, std::string text = "", Value literal = {}) {
    tokens_.push_back({kind, at, std::move(text), std::move(literal)});
  }

  Sign read_sign() {
    if (looking_at("-")) return ++at_, Sign::kMinus;
    if (looking_at("+")) return ++at_, Sign::kPlus;
    return Sign::kNone;
  }

  void skip_space() {
    const std::string_view rest = std::string_view(text_).substr(at_);
    at_ += rest.size() - strip(rest, Side::kLeft).size();
  }

  // Returns the offset of the next "{{", "{%" or "{#", or the end.
  std::size_t find_tag() const {
    for (std::size_t at = text_.find('{', at_); at != std::string::npos; at = text_.find('{', at + 1))
      if (at + 1 < text_.size() && (text_[at + 1] == '{' || text_[at + 1] == '%' || text_[at + 1] == '#')) return at;
    return text_.size();
  }

  // Adds the data before a tag. `strips_line`: the tag removes white space between the start of its line and itself.
  void add_data(std::size_t from, std::size_t to, Sign sign, bool strips_line) {
    std::string_view data = std::string_view(text_).substr(from, to - from);
    if (sign == Sign::kMinus) {
      data = strip(data, Side::kRight);
    } else if (sign == Sign::kNone && strips_line) {
      const std::size_t line = data.rfind('\n') + 1;  // npos + 1 is 0
      if ((line > 0 || line_starts_) && strip(data.substr(line)).empty()) data = data.substr(0, line);
    }
    if (!data.empty()) add(TokenKind::kData, from, std::string(data));
  }

  void read_data() {
    const std::size_t from = at_;
    const std::size_t tag = find_tag();
    if (tag == text_.size()) {
      add_data(from, tag, Sign::kPlus, false);
      at_ = tag;
      return;
    }
    const char kind = text_[tag + 1];
    at_ = tag + 2;
    if (kind == '%' && read_raw(from, tag)) return;
    const Sign sign = read_sign();
    add_data(from, tag, sign, kind != '{');
    line_starts_ = false;
    if (kind == '#') return read_comment(tag);
    add(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kPrintBegin, tag);
    read_code(tag, kind == '%');
  }

  // Moves past the "-", "+" and white space around the end of a tag; at_ is after the closing bracket.
  void end_tag(Sign sign) {
    const std::size_t from = at_;
    if (sign == Sign::kMinus) {
      skip_space();
    } else if (sign == Sign::kNone && looking_at("\n")) {
      ++at_;
    }
    line_starts_ = at_ > from && text_[at_ - 1] == '\n';
  }

  void read_comment(std::size_t tag) {
    const std::size_t end = text_.find("#}", at_);
    if (end == std::string::npos) fail(tag, "this comment does not end; close it with \"#}\"");
    const char before = end > at_ ? text_[end - 1] : ' ';
    at_ = end + 2;
    end_tag(before == '-' ? Sign::kMinus : before == '+' ? Sign::kPlus : Sign::kNone);
  }

  // Reads "{% raw %} ... {% endraw %}". Returns false, without a change, if the tag is another.
  bool read_raw(std::size_t from, std::size_t tag) {
    const std::size_t start = at_;
    const Sign sign = read_sign();
    skip_space();
    if (!looking_at("raw")) return at_ = start, false;
    at_ += 3;
    skip_space();
    const bool strips = looking_at("-%}");
    if (!strips && !looking_at("%}")) return at_ = start, false;
    add_data(from, tag, sign, true);
    at_ += strips ? 3 : 2;
    line_starts_ = false;
    const std::size_t after = at_;
    if (strips) skip_space();
    if (at_ > after) line_starts_ = text_[at_ - 1] == '\n';
    const std::size_t body = at_;
    for (std::size_t end = text_.find("{%", at_); end != std::string::npos; end = text_.find("{%", end + 1)) {
      at_ = end + 2;
      const Sign before = read_sign();
      skip_space();
      if (!looking_at("endraw")) continue;
      at_ += 6;
      skip_space();
      const Sign close = read_sign();
      if (!looking_at("%}")) continue;
      add_data(body, end, before, true);
      at_ += 2;
      end_tag(close);
      return true;
    }
    fail(tag, "this raw block does not end; close it with \"{% endraw %}\"");
  }

  void read_code(std::size_t tag, bool is_block) {
    std::vector<char> open;
    const std::string_view closing = is_block ? "%}" : "}}";
    while (true) {
      skip_space();
      if (at_ >= text_.size()) fail(tag, "this tag does not end; close it with \"" + std::string(closing) + "\"");
      if (open.empty()) {
        const std::size_t from = at_;
        const Sign sign = looking_at("-") || (is_block && looking_at("+")) ? read_sign() : Sign::kNone;
        if (looking_at(closing)) {
          add(is_block ? TokenKind::kBlockEnd : TokenKind::kPrintEnd, from);
          at_ += 2;
          end_tag(is_block || sign == Sign::kMinus ? sign : Sign::kPlus);  // "}}" keeps the line end
          return;
        }
        at_ = from;
      }
      read_token(open);
    }
  }

  void read_token(std::vector<char>& open) {
    const std::size_t from = at_;
    const char c = text_[at_];
    if (is_digit(c)) return read_number();
    if (is_name_start(c)) {
      while (at_ < text_.size() && is_name_part(text_[at_])) ++at_;
      if (at_ < text_.size() && static_cast<unsigned char>(text_[at_]) >= 0x80) fail_character();
      return add(TokenKind::kName, from, text_.substr(from, at_ - from));
    }
    if (c == '\'' || c == '"') {
      std::size_t end = at_ + 1;
      while (end < text_.size() && text_[end] != c) end += text_[end] == '\\' ? 2 : 1;
      if (end >= text_.size()) fail(from, "this string does not end; close it with " + std::string(1, c));
      at_ = end + 1;
      return add(TokenKind::kLiteral, from, "", read_string_literal(source_, from + 1, end));
    }
    read_operator(open);
  }

  [[noreturn]] void fail_character() const {
    std::size_t end = at_;
    next_code_point(text_, end);
    fail(at_, "the character \"" + text_.substr(at_, end - at_) +
                  "\" is not allowed here; names are ASCII letters, digits and _");
  }

  void read_operator(std::vector<char>& open) {
    static constexpr std::array<std::string_view, 25> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                                    "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                                    ">",  "<",  "=",  ".",  ":",  "|",  ","};
    const auto* found = std::ranges::find_if(kOperators, [&](std::string_view o) { return looking_at(o); });
    if (found == kOperators.end()) fail_character();
    const char c = found->front();
    if (*found == "(" || *found == "[" || *found == "{") open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (*found == ")" || *found == "]" || *found == "}") {
      if (open.empty()) fail(at_, "\"" + std::string(1, c) + "\" closes nothing");
      if (open.back() != c)
        fail(at_, "expected \"" + std::string(1, open.back()) + "\", found \"" + std::string(1, c) + "\"");
      open.pop_back();
    }
    add(TokenKind::kOperator, at_, std::string(*found));
    at_ += found->size();
  }

  // Reads digits with single underscores between them. Returns false if there is no digit.
  bool read_digits() {
    if (at_ >= text_.size() || !is_digit(text_[at_])) return false;
    while (at_ < text_.size() &&
           (is_digit(text_[at_]) || (text_[at_] == '_' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]))))
      ++at_;
    return true;
  }

  void read_number() {
    const std::size_t from = at_;
    const char second = from + 1 < text_.size() ? text_[from + 1] : ' ';
    if (text_[from] == '0' && std::string_view("xXoObB").find(second) != std::string_view::npos)
      fail(from, "numbers with a base (0x10) are not supported; write them in decimal");
    // "a.1.2" is two subscripts and not a float.
    const bool may_be_real = from == 0 || text_[from - 1] != '.';
    read_digits();
    const std::size_t whole = at_;
    bool is_real = false;
    if (may_be_real && looking_at(".")) {
      ++at_;
      is_real = read_digits();
      if (!is_real) at_ = whole;
    }
    const std::size_t mantissa = at_;
    if (may_be_real && (looking_at("e") || looking_at("E"))) {
      ++at_;
      if (looking_at("+") || looking_at("-")) ++at_;
      if (read_digits()) {
        is_real = true;
      } else {
        at_ = mantissa;
      }
    }
    const std::string digits = text_.substr(from, at_ - from);
    try {
      const auto whole_number = is_real ? std::nullopt : parse_integer(digits);
      const auto real = is_real ? parse_real(digits) : std::nullopt;
      if (whole_number && digits.size() > 1 && digits[0] == '0' && *whole_number != 0)
        fail(from, "an integer must not start with 0");
      if (!whole_number && !real) fail(from, "\"" + digits + "\" is not a number");
      add(TokenKind::kLiteral, from, "", real ? Value::real(*real) : Value::integer(*whole_number));
    } catch (const Fault& fault) {
      fail(from, fault.what());
    }
  }

  const Source& source_;
  const std::string& text_;
  std::size_t at_ = 0;
  bool line_starts_ = true;  // only white space may be left before at_ in its line
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(const Source& source) { return Lexer(source).run(); }

}  // namespace titan::data::jinja
