#include "data/chat/jinja/syntax/expression_parser.h"

#include <algorithm>
#include <array>
#include <optional>

namespace titan::data::jinja {
namespace {

// Deepest tree of an expression: evaluation and destruction recurse into it.
constexpr std::size_t kMaxTree = 200;

template <typename Meaning>
struct Operator {
  std::string_view text;
  Meaning meaning;
};

template <typename Meaning, std::size_t n>
std::optional<Meaning> find_operator(const TokenStream& tokens, const std::array<Operator<Meaning>, n>& operators) {
  for (const auto& [text, meaning] : operators)
    if (tokens.is_operator(text)) return meaning;
  return std::nullopt;
}

constexpr std::array<Operator<Comparison>, 6> kComparisons = {{{"==", Comparison::kEqual},
                                                               {"!=", Comparison::kNotEqual},
                                                               {"<", Comparison::kLess},
                                                               {"<=", Comparison::kLessEqual},
                                                               {">", Comparison::kGreater},
                                                               {">=", Comparison::kGreaterEqual}}};
constexpr std::array<Operator<Arithmetic>, 2> kSums = {{{"+", Arithmetic::kAdd}, {"-", Arithmetic::kSubtract}}};
constexpr std::array<Operator<Arithmetic>, 4> kProducts = {{{"*", Arithmetic::kMultiply},
                                                            {"/", Arithmetic::kDivide},
                                                            {"//", Arithmetic::kFloorDivide},
                                                            {"%", Arithmetic::kModulo}}};

}  // namespace

ExpressionPtr ExpressionParser::make(ExpressionKind kind, std::size_t at) {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->at = at;
  return node;
}

void ExpressionParser::note_depth(Expression& parent, const Expression& child) {
  parent.depth = std::max(parent.depth, child.depth + 1);
  if (parent.depth > kMaxTree)
    tokens_.fail(parent.at, "this expression has more than " + std::to_string(kMaxTree) +
                                " levels; assign parts of it to variables");
}

void ExpressionParser::add(Expression& parent, std::vector<ExpressionPtr>& to, ExpressionPtr part) {
  if (part != nullptr) note_depth(parent, *part);
  to.push_back(std::move(part));
}

ExpressionPtr ExpressionParser::expression() {
  // Parentheses and brackets come back here before a node exists, so that the tree's depth is not enough.
  if (++nesting_ > kMaxTree) tokens_.fail(tokens_.current().at, "this expression is nested too deeply");
  ExpressionPtr value = any_of();
  while (tokens_.is_name("if")) {
    ExpressionPtr choice = make(ExpressionKind::kChoice, tokens_.next().at);
    add(*choice, choice->parts, any_of());
    add(*choice, choice->parts, std::move(value));
    add(*choice, choice->parts, tokens_.skip_name("else") ? expression() : nullptr);
    value = std::move(choice);
  }
  --nesting_;
  return value;
}

ExpressionPtr ExpressionParser::tuple(bool allow_choice, std::string_view end) {
  const std::size_t at = tokens_.current().at;
  const auto ended = [&] {
    return tokens_.is(TokenKind::kPrintEnd) || tokens_.is(TokenKind::kBlockEnd) || tokens_.is_operator(")") ||
           (!end.empty() && tokens_.is_name(end));
  };
  ExpressionPtr first;
  ExpressionPtr many;
  while (!ended()) {
    ExpressionPtr value = allow_choice ? expression() : any_of();
    if (many != nullptr) {
      add(*many, many->parts, std::move(value));
    } else {
      first = std::move(value);
    }
    if (!tokens_.skip_operator(",")) break;
    if (many == nullptr) {
      many = make(ExpressionKind::kTuple, at);
      add(*many, many->parts, std::move(first));
    }
  }
  if (many != nullptr) return many;
  if (first == nullptr) tokens_.fail_expected("an expression");
  return first;
}

ExpressionPtr ExpressionParser::any_of() {
  ExpressionPtr left = all_of();
  while (tokens_.is_name("or")) {
    ExpressionPtr node = make(ExpressionKind::kOr, tokens_.next().at);
    add(*node, node->parts, std::move(left));
    add(*node, node->parts, all_of());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::all_of() {
  ExpressionPtr left = negation();
  while (tokens_.is_name("and")) {
    ExpressionPtr node = make(ExpressionKind::kAnd, tokens_.next().at);
    add(*node, node->parts, std::move(left));
    add(*node, node->parts, negation());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::negation() {
  if (!tokens_.is_name("not")) return comparison();
  if (++nesting_ > kMaxTree) tokens_.fail(tokens_.current().at, "this expression is nested too deeply");
  ExpressionPtr node = make(ExpressionKind::kNot, tokens_.next().at);
  add(*node, node->parts, negation());
  --nesting_;
  return node;
}

ExpressionPtr ExpressionParser::comparison() {
  ExpressionPtr first = sum();
  ExpressionPtr node;
  while (true) {
    const std::size_t at = tokens_.current().at;
    std::optional<Comparison> found = find_operator(tokens_, kComparisons);
    if (tokens_.is_name("in")) found = Comparison::kIn;
    if (tokens_.is_name("not") && tokens_.look().kind == TokenKind::kName && tokens_.look().text == "in") {
      tokens_.next();
      found = Comparison::kNotIn;
    }
    if (!found) break;
    tokens_.next();
    if (node == nullptr) {
      node = make(ExpressionKind::kCompare, at);
      add(*node, node->parts, std::move(first));
    }
    node->comparisons.push_back(*found);
    add(*node, node->parts, sum());
  }
  return node != nullptr ? std::move(node) : std::move(first);
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr left = concatenation();
  while (const auto operation = find_operator(tokens_, kSums)) {
    ExpressionPtr node = make(ExpressionKind::kArithmetic, tokens_.next().at);
    node->operation = *operation;
    add(*node, node->parts, std::move(left));
    add(*node, node->parts, concatenation());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::concatenation() {
  ExpressionPtr first = product();
  if (!tokens_.is_operator("~")) return first;
  ExpressionPtr node = make(ExpressionKind::kConcatenate, tokens_.current().at);
  add(*node, node->parts, std::move(first));
  while (tokens_.skip_operator("~")) add(*node, node->parts, product());
  return node;
}

ExpressionPtr ExpressionParser::product() {
  ExpressionPtr left = power();
  while (const auto operation = find_operator(tokens_, kProducts)) {
    ExpressionPtr node = make(ExpressionKind::kArithmetic, tokens_.next().at);
    node->operation = *operation;
    add(*node, node->parts, std::move(left));
    add(*node, node->parts, power());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = unary();
  while (tokens_.is_operator("**")) {  // from the left, unlike Python
    ExpressionPtr node = make(ExpressionKind::kArithmetic, tokens_.next().at);
    node->operation = Arithmetic::kPower;
    add(*node, node->parts, std::move(left));
    add(*node, node->parts, unary());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  ExpressionPtr node;
  if (tokens_.is_operator("-") || tokens_.is_operator("+")) {
    if (++nesting_ > kMaxTree) tokens_.fail(tokens_.current().at, "this expression is nested too deeply");
    const bool negative = tokens_.is_operator("-");
    node = make(negative ? ExpressionKind::kNegative : ExpressionKind::kPositive, tokens_.next().at);
    add(*node, node->parts, unary(false));
    --nesting_;
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filters ? filter_or_test(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::primary() {
  if (tokens_.is_operator("(")) return parentheses();
  if (tokens_.is_operator("[")) return list();
  if (tokens_.is_operator("{")) return dict();
  if (tokens_.is(TokenKind::kLiteral)) {
    const Token token = tokens_.next();
    ExpressionPtr node = make(ExpressionKind::kLiteral, token.at);
    node->literal = token.literal;
    if (!token.literal.is_text()) return node;
    std::string text = token.literal.as_text();  // adjacent strings are one
    while (tokens_.is(TokenKind::kLiteral) && tokens_.current().literal.is_text())
      text += tokens_.next().literal.as_text();
    node->literal = Value::text(std::move(text));
    return node;
  }
  const Token token = tokens_.expect_any_name("an expression");
  ExpressionPtr node = make(ExpressionKind::kLiteral, token.at);
  if (token.text == "true" || token.text == "True" || token.text == "false" || token.text == "False") {
    node->literal = Value::boolean(token.text == "true" || token.text == "True");
  } else if (token.text != "none" && token.text != "None") {
    node->kind = ExpressionKind::kName;
    node->name = token.text;
  }
  return node;
}

ExpressionPtr ExpressionParser::parentheses() {
  const std::size_t at = tokens_.next().at;
  if (tokens_.skip_operator(")")) return make(ExpressionKind::kTuple, at);
  ExpressionPtr value = tuple();
  tokens_.expect_operator(")");
  return value;
}

ExpressionPtr ExpressionParser::list() {
  ExpressionPtr node = make(ExpressionKind::kList, tokens_.next().at);
  while (!tokens_.is_operator("]")) {
    add(*node, node->parts, expression());
    if (!tokens_.is_operator("]")) tokens_.expect_operator(",");
  }
  tokens_.next();
  return node;
}

ExpressionPtr ExpressionParser::dict() {
  ExpressionPtr node = make(ExpressionKind::kDict, tokens_.next().at);
  while (!tokens_.is_operator("}")) {
    add(*node, node->parts, expression());
    tokens_.expect_operator(":");
    add(*node, node->parts, expression());
    if (!tokens_.is_operator("}")) tokens_.expect_operator(",");
  }
  tokens_.next();
  return node;
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr value) {
  while (true) {
    if (tokens_.is_operator(".")) {
      value = attribute(std::move(value));
    } else if (tokens_.is_operator("[")) {
      value = subscript(std::move(value));
    } else if (tokens_.is_operator("(")) {
      value = call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::filter_or_test(ExpressionPtr value) {
  while (true) {
    if (tokens_.is_operator("|")) {
      value = filters(std::move(value), false);
    } else if (tokens_.is_name("is")) {
      value = test(std::move(value));
    } else if (tokens_.is_operator("(")) {
      value = call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::attribute(ExpressionPtr value) {
  const std::size_t at = tokens_.next().at;
  if (tokens_.is(TokenKind::kLiteral) && tokens_.current().literal.is(Kind::kInt)) {
    ExpressionPtr index = make(ExpressionKind::kLiteral, tokens_.current().at);
    index->literal = tokens_.next().literal;
    ExpressionPtr node = make(ExpressionKind::kSubscript, at);
    add(*node, node->parts, std::move(value));
    add(*node, node->parts, std::move(index));
    return node;
  }
  const Token name = tokens_.expect_any_name("the name of an attribute");
  ExpressionPtr node = make(ExpressionKind::kAttribute, name.at);
  node->name = name.text;
  add(*node, node->parts, std::move(value));
  return node;
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr value) {
  ExpressionPtr node = make(ExpressionKind::kSubscript, tokens_.next().at);
  add(*node, node->parts, std::move(value));
  add(*node, node->parts, tokens_.is_operator(":") ? nullptr : expression());
  if (tokens_.is_operator(":")) {
    node->kind = ExpressionKind::kSlice;
    const auto is_end = [&] { return tokens_.is_operator("]") || tokens_.is_operator(":"); };
    for (int i = 0; i < 2; ++i) {
      const bool given = tokens_.skip_operator(":") && !is_end();
      add(*node, node->parts, given ? expression() : nullptr);
    }
  }
  if (tokens_.is_operator(",")) tokens_.fail(tokens_.current().at, "several subscripts in one [] are not supported");
  tokens_.expect_operator("]");
  return node;
}

ExpressionPtr ExpressionParser::call(ExpressionPtr callee) {
  ExpressionPtr node = make(ExpressionKind::kCall, tokens_.current().at);
  add(*node, node->parts, std::move(callee));
  arguments(*node);
  return node;
}

void ExpressionParser::arguments(Expression& call) {
  tokens_.expect_operator("(");
  while (!tokens_.is_operator(")")) {
    const Token first = tokens_.current();
    if (call.unpacked_named != nullptr) tokens_.fail(first.at, "an argument follows one that is unpacked with \"**\"");
    if (tokens_.is_operator("*") || tokens_.is_operator("**")) {
      ExpressionPtr& unpacked = tokens_.is_operator("*") ? call.unpacked : call.unpacked_named;
      if (unpacked != nullptr) tokens_.fail(first.at, "only one argument can be unpacked with \"*\"");
      tokens_.next();
      ExpressionPtr value = expression();
      note_depth(call, *value);
      unpacked = std::move(value);
      if (!tokens_.is_operator(")")) tokens_.expect_operator(",");
      continue;
    }
    if (first.kind == TokenKind::kName && tokens_.look().kind == TokenKind::kOperator && tokens_.look().text == "=") {
      tokens_.next();
      tokens_.next();
      for (const auto& [name, value] : call.named)
        if (name == first.text) tokens_.fail(first.at, "the argument `" + name + "` is given twice");
      ExpressionPtr value = expression();
      note_depth(call, *value);
      call.named.emplace_back(first.text, std::move(value));
    } else {
      if (!call.named.empty() || call.unpacked != nullptr)
        tokens_.fail(first.at, "an argument without a name follows one with a name or an unpacked one");
      add(call, call.positional, expression());
    }
    if (!tokens_.is_operator(")")) tokens_.expect_operator(",");
  }
  tokens_.next();
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr input, bool name_is_next) {
  while (name_is_next || tokens_.skip_operator("|")) {
    name_is_next = false;
    const Token name = tokens_.expect_any_name("the name of a filter");
    ExpressionPtr node = make(ExpressionKind::kFilter, name.at);
    node->name = name.text;
    add(*node, node->parts, std::move(input));
    if (tokens_.is_operator("(")) arguments(*node);
    input = std::move(node);
  }
  return input;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr value) {
  const std::size_t at = tokens_.next().at;
  const bool negated = tokens_.skip_name("not");
  const Token name = tokens_.expect_any_name("the name of a test");
  ExpressionPtr node = make(ExpressionKind::kTest, name.at);
  node->name = name.text;
  add(*node, node->parts, std::move(value));
  const bool takes_argument =
      tokens_.is(TokenKind::kLiteral) || tokens_.is_operator("[") || tokens_.is_operator("{") ||
      (tokens_.is(TokenKind::kName) && !tokens_.is_name("else") && !tokens_.is_name("or") && !tokens_.is_name("and"));
  if (tokens_.is_operator("(")) {
    arguments(*node);
  } else if (takes_argument) {
    if (tokens_.is_name("is")) tokens_.fail(tokens_.current().at, "tests cannot be chained; use `and`");
    add(*node, node->positional, postfix(primary()));
  }
  if (!negated) return node;
  ExpressionPtr inverse = make(ExpressionKind::kNot, at);
  add(*inverse, inverse->parts, std::move(node));
  return inverse;
}

Target ExpressionParser::single_target(bool allow_attribute) {
  if (tokens_.is_operator("(")) {
    const std::size_t at = tokens_.next().at;
    if (++nesting_ > kMaxTree) tokens_.fail(at, "this target is nested too deeply");
    Target inner = target(false);
    tokens_.expect_operator(")");
    --nesting_;
    return inner;
  }
  const Token name = tokens_.expect_any_name("the name of a variable");
  for (const std::string_view constant : {"true", "True", "false", "False", "none", "None"})
    if (name.text == constant) tokens_.fail(name.at, "`" + name.text + "` cannot be assigned to");
  Target out;
  out.at = name.at;
  out.name = name.text;
  if (allow_attribute && tokens_.skip_operator("."))
    out.attribute = tokens_.expect_any_name("the name of an attribute").text;
  return out;
}

Target ExpressionParser::target(bool allow_attribute, std::string_view end) {
  Target first = single_target(allow_attribute);
  if (!tokens_.is_operator(",")) return first;
  Target many;
  many.at = first.at;
  many.parts.push_back(std::move(first));
  while (tokens_.skip_operator(",")) {
    if (tokens_.is_operator(")") || tokens_.is_operator("=") || (!end.empty() && tokens_.is_name(end))) break;
    many.parts.push_back(single_target(allow_attribute));
  }
  return many;
}

}  // namespace titan::data::jinja
