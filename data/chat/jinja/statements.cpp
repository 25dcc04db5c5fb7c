#include "data/chat/jinja/evaluator.h"
#include "data/chat/jinja/values/callable.h"
#include "data/chat/jinja/values/loop.h"
#include "data/chat/jinja/values/value_operators.h"
#include "data/chat/jinja/values/value_text.h"

namespace titan::data::jinja {

Evaluator::Flow Evaluator::execute(const Body& body, const ScopePtr& scope, std::string& out) {
  const Level level(*this);
  for (const auto& statement : body) {
    const Flow flow = execute(*statement, scope, out);
    if (flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Evaluator::Flow Evaluator::execute(const Statement& statement, const ScopePtr& scope, std::string& out) {
  Flow flow = Flow::kOn;
  at_ = statement.at;
  spend(kStep);
  switch (statement.kind) {
    case StatementKind::kData:
      check_weight(out.size() + statement.text.size());
      out += statement.text;
      break;
    case StatementKind::kPrint: {
      const Value value = evaluate(*statement.value, scope);
      at_ = statement.at;
      append_text(out, value);
      break;
    }
    case StatementKind::kIf:
      for (const auto& [condition, branch] : statement.branches)
        if (evaluate(*condition, scope).truthy()) return execute(branch, scope, out);
      return execute(statement.otherwise, scope, out);
    case StatementKind::kFor:
      return execute_for(statement, scope, out);
    case StatementKind::kSet: {
      const Value value = evaluate(*statement.value, scope);
      at_ = statement.at;
      assign(statement.target, value, scope);
      break;
    }
    case StatementKind::kSetBlock: {
      Value value = Value::text(execute_to_text(statement.body, scope));
      if (statement.value != nullptr) value = evaluate_filter(*statement.value, scope, &value);
      at_ = statement.at;
      assign(statement.target, value, scope);
      break;
    }
    case StatementKind::kMacro:
      scope->set(statement.macro.name, make_macro(statement.macro, scope));
      break;
    case StatementKind::kCallBlock:
      execute_call_block(statement, scope, out);
      break;
    case StatementKind::kFilterBlock: {
      const Value value = Value::text(execute_to_text(statement.body, scope));
      append_text(out, evaluate_filter(*statement.value, scope, &value));
      break;
    }
    case StatementKind::kWith:
      execute_with(statement, scope, out, flow);
      break;
    case StatementKind::kGeneration: {
      const std::size_t begin = out.size();
      execute(statement.body, std::make_shared<Scope>(scope), out);
      generated_->push_back({begin, out.size()});
      break;
    }
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return flow;
}

Evaluator::Flow Evaluator::execute_for(const Statement& statement, const ScopePtr& scope, std::string& out) {
  const Value iterable = evaluate(*statement.value, scope);
  at_ = statement.value->at;
  spend_on(iterable);
  Loop::Condition condition;
  if (statement.condition != nullptr) {
    condition = [&](const Value& item) {
      const auto inner = std::make_shared<Scope>(scope);
      assign(statement.target, item, inner);
      return evaluate(*statement.condition, inner).truthy();
    };
  }
  const auto loop = std::make_shared<Loop>(iterable, std::move(condition));
  bool ran = false;
  while (loop->advance()) {
    ran = true;
    spend(4 * kStep);  // for the scope
    const auto inner = std::make_shared<Scope>(scope);
    inner->set("loop", Value::of(loop));
    at_ = statement.at;
    assign(statement.target, loop->item(), inner);
    if (execute(statement.body, inner, out) == Flow::kBreak) break;
    at_ = statement.at;
  }
  loop->end();
  return ran ? Flow::kOn : execute(statement.otherwise, std::make_shared<Scope>(scope), out);
}

void Evaluator::execute_call_block(const Statement& statement, const ScopePtr& scope, std::string& out) {
  const Value caller = make_macro(statement.macro, scope);
  const Value value = evaluate_call(*statement.value, scope, &caller);
  at_ = statement.at;
  append_text(out, value);
}

void Evaluator::execute_with(const Statement& statement, const ScopePtr& scope, std::string& out, Flow& flow) {
  const auto inner = std::make_shared<Scope>(scope);
  for (const auto& [target, expression] : statement.assignments) {
    const Value value = evaluate(*expression, scope);
    at_ = target.at;
    assign(target, value, inner);
  }
  flow = execute(statement.body, inner, out);
}

std::string Evaluator::execute_to_text(const Body& body, const ScopePtr& outer) {
  std::string text;
  execute(body, std::make_shared<Scope>(outer), text);
  spend(text.size());
  return text;
}

void Evaluator::assign(const Target& target, const Value& value, const ScopePtr& scope) {
  if (!target.attribute.empty()) {
    const Value* space = scope->find(target.name);
    if (space == nullptr || !space->is(Kind::kNamespace))
      throw Fault("`" + target.name + "` is not a namespace; only their attributes can be set");
    if (target.attribute.starts_with('_'))
      throw Fault("an attribute of a namespace must not start with _: `" + target.attribute + "`");
    space->as_namespace().set(target.attribute, value);
    return;
  }
  if (!target.name.empty()) {
    scope->set(target.name, value);
    return;
  }
  const Values items = iterate(value);
  if (items.size() != target.parts.size())
    throw Fault("expected " + std::to_string(target.parts.size()) + " values to assign, found " +
                std::to_string(items.size()));
  for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i], scope);
}

// Keeps the scope until the end of the rendering: a macro can be stored in a namespace and called later.
Value Evaluator::make_macro(const MacroNode& macro, const ScopePtr& scope) {
  if (kept_.empty() || kept_.back() != scope) kept_.push_back(scope);
  Callable callable{Callable::Kind::kMacro, macro.name, Value()};
  callable.macro = &macro;
  callable.scope = kept_.size() - 1;
  return Value::of(std::make_shared<const Callable>(std::move(callable)));
}

}  // namespace titan::data::jinja
