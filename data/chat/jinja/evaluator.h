// Renders a parsed template.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat/jinja/builtins.h"
#include "data/chat/jinja/syntax/ast.h"
#include "data/chat/jinja/syntax/template_source.h"

namespace titan::data::jinja {

// Variables of a statement's body. Jinja decides when it compiles a template which scope a name belongs to: an
// assignment goes to the innermost scope and is not seen outside.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> outer) : parent(std::move(outer)) {}
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string_view, Value>> variables;  // names are of the syntax tree or of the caller

  // Returns null if no scope has the name.
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};
using ScopePtr = std::shared_ptr<Scope>;

// Bytes [begin, end) of the output.
struct OutputRange {
  std::size_t begin;
  std::size_t end;
};

class Evaluator {
 public:
  // `source` and `body` must outlive the evaluator. `clock` may be empty: then it is the system's.
  Evaluator(const Source& source, const Body& body, std::function<std::time_t()> clock) : source_(source), body_(body) {
    state_.clock = std::move(clock);
  }

  // Renders once. Appends to `out`, and to `generated` a range for each {% generation %}. Throws DataError with the
  // place in the template.
  void run(const std::vector<std::pair<std::string, Value>>& variables, std::string& out,
           std::vector<OutputRange>& generated);

 private:
  enum class Flow { kOn, kBreak, kContinue };

  // Work of a step of evaluation, in the unit of spend(): a byte of text that is made or read.
  static constexpr std::size_t kStep = 64;

  // Counts the levels of recursion, and throws when there are too many.
  class Level {
   public:
    explicit Level(Evaluator& evaluator);
    ~Level() { --evaluator_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Evaluator& evaluator_;
  };

  // statements.cpp
  Flow execute(const Body& body, const ScopePtr& scope, std::string& out);
  Flow execute(const Statement& statement, const ScopePtr& scope, std::string& out);
  Flow execute_for(const Statement& statement, const ScopePtr& scope, std::string& out);
  void execute_call_block(const Statement& statement, const ScopePtr& scope, std::string& out);
  void execute_with(const Statement& statement, const ScopePtr& scope, std::string& out, Flow& flow);
  std::string execute_to_text(const Body& body, const ScopePtr& outer);
  void assign(const Target& target, const Value& value, const ScopePtr& scope);
  Value make_macro(const MacroNode& macro, const ScopePtr& scope);

  // evaluator.cpp
  Value evaluate(const Expression& node, const ScopePtr& scope);
  Value evaluate_parts(const Expression& node, const ScopePtr& scope);
  Value evaluate_name(const Expression& node, const ScopePtr& scope);
  Value evaluate_dict(const Expression& node, const ScopePtr& scope);
  Value evaluate_compare(const Expression& node, const ScopePtr& scope);
  Value evaluate_concatenation(const Expression& node, const ScopePtr& scope);
  // `block`: the input of the first filter of a filter block.
  Value evaluate_filter(const Expression& node, const ScopePtr& scope, const Value* block);
  Value evaluate_call(const Expression& node, const ScopePtr& scope, const Value* caller);
  Arguments evaluate_arguments(const Expression& node, const ScopePtr& scope);
  Value call(const Value& callee, Arguments arguments, std::size_t at);
  Value call_macro(const MacroNode& macro, const ScopePtr& scope, Arguments arguments);

  // Counts work that takes time and throws when it is too much: templates must not run for hours.
  void spend(std::size_t work);
  void spend_on(const Value& value);

  const Source& source_;
  const Body& body_;
  RenderState state_;
  std::vector<ScopePtr> kept_;  // scopes that macros were defined in
  std::vector<OutputRange>* generated_ = nullptr;
  std::size_t at_ = 0;  // what is being evaluated, for messages
  std::size_t level_ = 0;
  std::size_t work_ = 0;
};

}  // namespace titan::data::jinja
