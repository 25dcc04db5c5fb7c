#include "data/chat/jinja/syntax/parser.h"

#include <algorithm>
#include <array>

#include "data/chat/jinja/syntax/expression_parser.h"
#include "data/chat/jinja/syntax/token_stream.h"

namespace titan::data::jinja {
namespace {

constexpr std::size_t kMaxNesting = 100;  // statements inside statements

using Names = std::vector<std::string_view>;

class Parser {
 public:
  explicit Parser(const Source& source) : tokens_(source), expressions_(tokens_) {}

  Body run() { return body({}, "", 0); }

 private:
  // State that a statement's body changes for the statements in it.
  struct Surroundings {
    bool in_loop = false;        // `break` is allowed
    bool in_buffer = false;      // output is not the template's: in a macro, a block set, a filter or call block
    bool in_generation = false;  // inside {% generation %}
  };

  // Parses statements until a tag with one of the names `ends`, which stays; `opener` and `opened_at` say what it ends.
  Body body(const Names& ends, const std::string& opener, std::size_t opened_at) {
    if (++nesting_ > kMaxNesting) tokens_.fail(opened_at, "statements are nested more than 100 levels deep");
    Body statements;
    while (true) {
      if (tokens_.is(TokenKind::kEnd)) {
        if (!ends.empty())
          tokens_.fail(opened_at,
                       "`" + opener + "` does not end; close it with {% " + std::string(ends.back()) + " %}");
        break;
      }
      const Token token = tokens_.next();
      if (token.kind == TokenKind::kData) {
        auto data = make(StatementKind::kData, token.at);
        data->text = token.text;
        statements.push_back(std::move(data));
      } else if (token.kind == TokenKind::kPrintBegin) {
        auto print = make(StatementKind::kPrint, token.at);
        print->value = expressions_.tuple();
        tokens_.expect(TokenKind::kPrintEnd, "\"}}\"");
        statements.push_back(std::move(print));
      } else {
        if (tokens_.is(TokenKind::kName) && std::ranges::find(ends, tokens_.current().text) != ends.end()) break;
        statements.push_back(statement(ends, opener));
        end_tag();
      }
    }
    --nesting_;
    return statements;
  }

  // Parses the rest of the current tag and the body after it.
  Body body_after_tag(const Names& ends, const std::string& opener, std::size_t opened_at) {
    tokens_.skip_operator(":");
    end_tag();
    return body(ends, opener, opened_at);
  }

  // As above, with other surroundings, and takes the name of the closing tag.
  Body closed_body(std::string_view end, const std::string& opener, std::size_t opened_at, Surroundings inside) {
    const Surroundings outside = std::exchange(surroundings_, inside);
    Body statements = body_after_tag({end}, opener, opened_at);
    surroundings_ = outside;
    tokens_.expect_name(end);
    return statements;
  }

  void end_tag() { tokens_.expect(TokenKind::kBlockEnd, "\"%}\""); }

  static std::unique_ptr<Statement> make(StatementKind kind, std::size_t at) {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->at = at;
    return statement;
  }

  std::unique_ptr<Statement> statement(const Names& ends, const std::string& opener) {
    using Parse = std::unique_ptr<Statement> (Parser::*)(std::size_t);
    static constexpr std::array<std::pair<std::string_view, Parse>, 10> kStatements = {
        {{"if", &Parser::parse_if},
         {"for", &Parser::parse_for},
         {"set", &Parser::parse_set},
         {"macro", &Parser::parse_macro},
         {"call", &Parser::parse_call_block},
         {"filter", &Parser::parse_filter_block},
         {"with", &Parser::parse_with},
         {"generation", &Parser::parse_generation},
         {"break", &Parser::parse_break},
         {"continue", &Parser::parse_continue}}};
    const Token name = tokens_.expect_any_name("the name of a statement");
    for (const auto& [known, parse] : kStatements)
      if (name.text == known) return (this->*parse)(name.at);
    static constexpr std::array<std::string_view, 11> kOfJinja = {
        "include", "import", "from", "extends", "block", "autoescape", "print", "do", "trans", "debug", "raw"};
    if (std::ranges::find(kOfJinja, name.text) != kOfJinja.end())
      tokens_.fail(name.at, "the statement `" + name.text + "` is not supported in chat templates; expected one of " +
                                known_statements(kStatements));
    if (!ends.empty() && name.text.starts_with("end"))
      tokens_.fail(name.at, "found {% " + name.text + " %} inside `" + opener + "`, which {% " +
                                std::string(ends.back()) + " %} ends");
    tokens_.fail(name.at,
                 "there is no statement `" + name.text + "`; expected one of " + known_statements(kStatements));
  }

  template <typename Statements>
  static std::string known_statements(const Statements& statements) {
    std::string names;
    for (const auto& [name, parse] : statements) names += (names.empty() ? "" : ", ") + std::string(name);
    return names + ", raw";
  }

  std::unique_ptr<Statement> parse_if(std::size_t at) {
    auto node = make(StatementKind::kIf, at);
    while (true) {
      ExpressionPtr condition = expressions_.tuple(false);
      node->branches.emplace_back(std::move(condition), body_after_tag({"elif", "else", "endif"}, "if", at));
      if (tokens_.skip_name("elif")) continue;
      if (tokens_.skip_name("else")) node->otherwise = body_after_tag({"endif"}, "if", at);
      tokens_.expect_name("endif");
      return node;
    }
  }

  std::unique_ptr<Statement> parse_for(std::size_t at) {
    auto node = make(StatementKind::kFor, at);
    node->target = expressions_.target(false, "in");
    check_not_loop(node->target);
    tokens_.expect_name("in");
    node->value = expressions_.tuple(false, "recursive");
    if (tokens_.skip_name("if")) node->condition = expressions_.expression();
    if (tokens_.is_name("recursive"))
      tokens_.fail(tokens_.current().at, "`recursive` loops are not supported; write a macro that calls itself");
    const Surroundings outside = surroundings_;
    surroundings_.in_loop = true;
    node->body = body_after_tag({"else", "endfor"}, "for", at);
    surroundings_ = outside;
    if (tokens_.skip_name("else")) node->otherwise = body_after_tag({"endfor"}, "for", at);
    tokens_.expect_name("endfor");
    return node;
  }

  std::unique_ptr<Statement> parse_set(std::size_t at) {
    auto node = make(StatementKind::kSet, at);
    node->target = expressions_.target(true);
    check_not_loop(node->target);
    if (tokens_.skip_operator("=")) {
      node->value = expressions_.tuple();
      return node;
    }
    node->kind = StatementKind::kSetBlock;
    node->value = expressions_.filters(nullptr, false);
    node->body = closed_body("endset", "set", at, buffered());
    return node;
  }

  // Throws for the name `loop`, which Jinja gives a meaning of its own.
  void check_not_loop(const Target& target) const {
    if (target.name == "loop" && target.attribute.empty())
      tokens_.fail(target.at, "`loop` is the variable of for statements and cannot be assigned to");
    for (const Target& part : target.parts) check_not_loop(part);
  }

  void parse_parameters(MacroNode& macro) {
    tokens_.expect_operator("(");
    while (!tokens_.is_operator(")")) {
      const Token name = tokens_.expect_any_name("the name of a parameter");
      for (const std::string_view special : {"caller", "varargs", "kwargs", "loop"})
        if (name.text == special) tokens_.fail(name.at, "a parameter named `" + name.text + "` is not supported");
      for (const Parameter& other : macro.parameters)
        if (other.name == name.text) tokens_.fail(name.at, "the parameter `" + name.text + "` is given twice");
      Parameter parameter{name.text, nullptr};
      if (tokens_.skip_operator("=")) {
        parameter.otherwise = expressions_.expression();
      } else if (!macro.parameters.empty() && macro.parameters.back().otherwise != nullptr) {
        tokens_.fail(name.at, "the parameter `" + name.text + "` needs a default, since those before it have one");
      }
      macro.parameters.push_back(std::move(parameter));
      if (!tokens_.is_operator(")")) tokens_.expect_operator(",");
    }
    tokens_.next();
  }

  std::unique_ptr<Statement> parse_macro(std::size_t at) {
    auto node = make(StatementKind::kMacro, at);
    node->macro.name = tokens_.expect_any_name("the name of the macro").text;
    parse_parameters(node->macro);
    node->macro.body = closed_body("endmacro", "macro", at, buffered());
    return node;
  }

  std::unique_ptr<Statement> parse_call_block(std::size_t at) {
    auto node = make(StatementKind::kCallBlock, at);
    if (tokens_.is_operator("(")) parse_parameters(node->macro);
    node->value = expressions_.expression();
    if (node->value->kind != ExpressionKind::kCall) tokens_.fail(at, "`call` needs the call of a macro");
    node->macro.body = closed_body("endcall", "call", at, buffered());
    return node;
  }

  std::unique_ptr<Statement> parse_filter_block(std::size_t at) {
    auto node = make(StatementKind::kFilterBlock, at);
    node->value = expressions_.filters(nullptr, true);
    node->body = closed_body("endfilter", "filter", at, buffered());
    return node;
  }

  std::unique_ptr<Statement> parse_with(std::size_t at) {
    auto node = make(StatementKind::kWith, at);
    while (!tokens_.is(TokenKind::kBlockEnd)) {
      if (!node->assignments.empty()) tokens_.expect_operator(",");
      Target target = expressions_.target(false);
      check_not_loop(target);
      tokens_.expect_operator("=");
      node->assignments.emplace_back(std::move(target), expressions_.expression());
    }
    node->body = closed_body("endwith", "with", at, surroundings_);
    return node;
  }

  std::unique_ptr<Statement> parse_generation(std::size_t at) {
    if (surroundings_.in_buffer || surroundings_.in_generation)
      tokens_.fail(at, std::string("`generation` inside ") +
                           (surroundings_.in_generation ? "`generation`" : "a macro, set, filter or call block") +
                           " is not supported: transformers marks wrong tokens there; move it outside");
    auto node = make(StatementKind::kGeneration, at);
    Surroundings inside = surroundings_;
    inside.in_loop = false;
    inside.in_generation = true;
    node->body = closed_body("endgeneration", "generation", at, inside);
    return node;
  }

  std::unique_ptr<Statement> parse_break(std::size_t at) { return parse_jump(StatementKind::kBreak, at, "break"); }
  std::unique_ptr<Statement> parse_continue(std::size_t at) {
    return parse_jump(StatementKind::kContinue, at, "continue");
  }

  std::unique_ptr<Statement> parse_jump(StatementKind kind, std::size_t at, const std::string& name) {
    if (!surroundings_.in_loop)
      tokens_.fail(at, "`" + name + "` must be inside a for statement, with no macro or block between them");
    return make(kind, at);
  }

  static Surroundings buffered() { return {.in_loop = false, .in_buffer = true, .in_generation = false}; }

  TokenStream tokens_;
  ExpressionParser expressions_;
  Surroundings surroundings_;
  std::size_t nesting_ = 0;
};

}  // namespace

Body parse(const Source& source) { return Parser(source).run(); }

}  // namespace titan::data::jinja
