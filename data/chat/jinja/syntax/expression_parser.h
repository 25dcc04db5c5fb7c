// Parses expressions: Jinja's precedences, from the conditional expression down to names and literals.
#pragma once

#include "data/chat/jinja/syntax/ast.h"
#include "data/chat/jinja/syntax/token_stream.h"

namespace titan::data::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  ExpressionPtr expression();
  // Parses an expression, or several with commas between them as a tuple. Without `allow_choice` an `if` ends it.
  // `end` is a name that ends the tuple too.
  ExpressionPtr tuple(bool allow_choice = true, std::string_view end = "");
  // Parses the name and arguments of a filter, and the filters after it. `input` is null at the start of a block.
  ExpressionPtr filters(ExpressionPtr input, bool name_is_next);
  // Parses what a value can be assigned to; `in` ends it in a for statement.
  Target target(bool allow_attribute, std::string_view end = "");

 private:
  ExpressionPtr any_of();
  ExpressionPtr all_of();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters = true);
  ExpressionPtr primary();
  ExpressionPtr parentheses();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr value);
  ExpressionPtr filter_or_test(ExpressionPtr value);
  ExpressionPtr attribute(ExpressionPtr value);
  ExpressionPtr subscript(ExpressionPtr value);
  ExpressionPtr call(ExpressionPtr callee);
  ExpressionPtr test(ExpressionPtr value);
  void arguments(Expression& call);
  Target single_target(bool allow_attribute);

  ExpressionPtr make(ExpressionKind kind, std::size_t at);
  // Adds a part and keeps track of the depth, which may be null.
  void add(Expression& parent, std::vector<ExpressionPtr>& to, ExpressionPtr part);
  void note_depth(Expression& parent, const Expression& child);

  TokenStream& tokens_;
  std::size_t nesting_ = 0;
};

}  // namespace titan::data::jinja
