// The tokens of a template, for the parsers of statements and expressions.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/jinja/syntax/lexer.h"

namespace titan::data::jinja {

class TokenStream {
 public:
  explicit TokenStream(const Source& source) : source_(source), tokens_(tokenize(source)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token next() {
    const std::size_t at = at_;
    if (at_ + 1 < tokens_.size()) ++at_;
    return tokens_[at];
  }

  bool is(TokenKind kind) const { return current().kind == kind; }
  bool is_name(std::string_view name) const { return is(TokenKind::kName) && current().text == name; }
  bool is_operator(std::string_view text) const { return is(TokenKind::kOperator) && current().text == text; }
  bool skip_name(std::string_view name) { return is_name(name) && (next(), true); }
  bool skip_operator(std::string_view text) { return is_operator(text) && (next(), true); }

  void expect_operator(std::string_view text) {
    if (!skip_operator(text)) fail_expected("\"" + std::string(text) + "\"");
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name)) fail_expected("`" + std::string(name) + "`");
  }
  void expect(TokenKind kind, const std::string& what) {
    if (!is(kind)) fail_expected(what);
    next();
  }
  Token expect_any_name(const std::string& what) {
    if (!is(TokenKind::kName)) fail_expected(what);
    return next();
  }

  [[noreturn]] void fail(std::size_t at, const std::string& message) const { throw source_.error(at, message); }
  [[noreturn]] void fail_expected(const std::string& what) const {
    fail(current().at, "expected " + what + ", found " + describe(current()));
  }

  static std::string describe(const Token& token) {
    switch (token.kind) {
      case TokenKind::kName:
        return "`" + token.text + "`";
      case TokenKind::kOperator:
        return "\"" + token.text + "\"";
      case TokenKind::kLiteral:
        return token.literal.is_text() ? "a string" : "a number";
      case TokenKind::kBlockEnd:
        return "\"%}\"";
      case TokenKind::kPrintEnd:
        return "\"}}\"";
      case TokenKind::kEnd:
        return "the end of the template";
      default:
        return "text";
    }
  }

 private:
  const Source& source_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

}  // namespace titan::data::jinja
