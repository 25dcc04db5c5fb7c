#include "data/chat/jinja/evaluator.h"

#include <algorithm>

#include "data/chat/jinja/attributes.h"
#include "data/chat/jinja/values/callable.h"
#include "data/chat/jinja/values/loop.h"
#include "data/chat/jinja/values/value_operators.h"
#include "data/chat/jinja/values/value_text.h"

namespace titan::data::jinja {
namespace {

// Deepest recursion of evaluation: nested expressions, statements and macros together. A level takes up to 1 KiB of
// stack, and 5 KiB with sanitizers.
constexpr std::size_t kMaxLevels = 1200;

// Work of one rendering, which takes some seconds.
constexpr std::size_t kMaxWork = std::size_t{4} << 30;

}  // namespace

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get())
    for (const auto& [known, value] : scope->variables)
      if (known == name) return &value;
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [known, old] : variables) {
    if (known != name) continue;
    old = std::move(value);
    return;
  }
  variables.emplace_back(name, std::move(value));
}

Evaluator::Level::Level(Evaluator& evaluator) : evaluator_(evaluator) {
  if (evaluator_.level_ == kMaxLevels)
    throw Fault("the template recurses more than " + std::to_string(kMaxLevels) +
                " levels deep; does a macro call itself without an end?");
  ++evaluator_.level_;
}

void Evaluator::spend(std::size_t work) {
  work_ += work;
  if (work_ > kMaxWork) throw Fault("the template takes too long; it loops over too much");
}

void Evaluator::spend_on(const Value& value) {
  if (value.is_text()) spend(value.as_text().size());
  if (value.is_list()) spend(value.as_list().items.size() * kStep);
  if (value.is_dict()) spend(value.as_dict().entries.size() * kStep);
}

void Evaluator::run(const std::vector<std::pair<std::string, Value>>& variables, std::string& out,
                    std::vector<OutputRange>& generated) {
  generated_ = &generated;
  const auto context = std::make_shared<Scope>(nullptr);
  for (const auto& [name, value] : variables) context->set(name, value);
  try {
    execute(body_, std::make_shared<Scope>(context), out);
  } catch (const Fault& fault) {
    throw source_.error(at_, fault.what());
  }
}

Value Evaluator::evaluate(const Expression& node, const ScopePtr& scope) {
  const Level level(*this);
  spend(kStep);
  switch (node.kind) {
    case ExpressionKind::kLiteral:
      return node.literal;
    case ExpressionKind::kName:
      return evaluate_name(node, scope);
    case ExpressionKind::kDict:
      return evaluate_dict(node, scope);
    case ExpressionKind::kCall:
      return evaluate_call(node, scope, nullptr);
    case ExpressionKind::kFilter:
      return evaluate_filter(node, scope, nullptr);
    case ExpressionKind::kConcatenate:
      return evaluate_concatenation(node, scope);
    case ExpressionKind::kCompare:
      return evaluate_compare(node, scope);
    case ExpressionKind::kAnd: {
      Value left = evaluate(*node.parts[0], scope);
      return left.truthy() ? evaluate(*node.parts[1], scope) : left;
    }
    case ExpressionKind::kOr: {
      Value left = evaluate(*node.parts[0], scope);
      return left.truthy() ? left : evaluate(*node.parts[1], scope);
    }
    case ExpressionKind::kChoice:
      if (evaluate(*node.parts[0], scope).truthy()) return evaluate(*node.parts[1], scope);
      if (node.parts[2] != nullptr) return evaluate(*node.parts[2], scope);
      return Value::undefined("the inline if-expression is false and has no else");
    default:
      return evaluate_parts(node, scope);
  }
}

// Evaluates the expressions that need all their parts.
Value Evaluator::evaluate_parts(const Expression& node, const ScopePtr& scope) {
  Values parts;
  parts.reserve(node.parts.size());
  for (const ExpressionPtr& part : node.parts) parts.push_back(part != nullptr ? evaluate(*part, scope) : Value());
  Arguments arguments;
  if (node.kind == ExpressionKind::kTest) arguments = evaluate_arguments(node, scope);
  at_ = node.at;
  switch (node.kind) {
    case ExpressionKind::kList:
      return Value::list(std::move(parts));
    case ExpressionKind::kTuple:
      return Value::tuple(std::move(parts));
    case ExpressionKind::kAttribute:
      return get_attribute(parts[0], node.name);
    case ExpressionKind::kSubscript:
      return get_item(parts[0], parts[1]);
    case ExpressionKind::kSlice:
      spend_on(parts[0]);
      return slice(parts[0], parts[1], parts[2], parts[3]);
    case ExpressionKind::kTest:
      if (node.name.size() <= 2 || node.name.starts_with("e")) spend(parts[0].weight());  // in, eq, equalto
      return Value::boolean(apply_test(node.name, parts[0], arguments));
    case ExpressionKind::kNot:
      return Value::boolean(!parts[0].truthy());
    case ExpressionKind::kNegative:
      return negate(parts[0]);
    case ExpressionKind::kPositive:
      return positive(parts[0]);
    default: {
      Value result = calculate(node.operation, parts[0], parts[1]);
      spend_on(result);
      return result;
    }
  }
}

Value Evaluator::evaluate_name(const Expression& node, const ScopePtr& scope) {
  if (const Value* found = scope->find(node.name)) return *found;
  if (find_function(node.name) != nullptr)
    return Value::of(std::make_shared<const Callable>(Callable{Callable::Kind::kFunction, node.name, Value()}));
  return Value::undefined("'" + node.name + "' is undefined");
}

Value Evaluator::evaluate_dict(const Expression& node, const ScopePtr& scope) {
  Entries entries;
  for (std::size_t i = 0; i < node.parts.size(); i += 2) {
    Value key = evaluate(*node.parts[i], scope);
    entries.emplace_back(std::move(key), evaluate(*node.parts[i + 1], scope));
  }
  at_ = node.at;
  return Value::dict(std::move(entries));
}

Value Evaluator::evaluate_concatenation(const Expression& node, const ScopePtr& scope) {
  std::string text;
  for (const ExpressionPtr& part : node.parts) {
    const Value value = evaluate(*part, scope);
    at_ = part->at;
    append_text(text, value);
  }
  spend(text.size());
  return Value::text(std::move(text));
}

Value Evaluator::evaluate_compare(const Expression& node, const ScopePtr& scope) {
  Value left = evaluate(*node.parts[0], scope);
  for (std::size_t i = 0; i < node.comparisons.size(); ++i) {
    Value right = evaluate(*node.parts[i + 1], scope);
    at_ = node.at;
    spend(std::min(left.weight(), right.weight()));
    const auto holds = [&] {
      switch (node.comparisons[i]) {
        case Comparison::kEqual:
          return equal(left, right);
        case Comparison::kNotEqual:
          return !equal(left, right);
        case Comparison::kLess:
          return compare(left, right) < 0;
        case Comparison::kLessEqual:
          return compare(left, right) <= 0;
        case Comparison::kGreater:
          return compare(left, right) > 0;
        case Comparison::kGreaterEqual:
          return compare(left, right) >= 0;
        case Comparison::kIn:
          spend_on(right);
          return contains_item(right, left);
        case Comparison::kNotIn:
          spend_on(right);
          return !contains_item(right, left);
      }
      return false;
    };
    if (!holds()) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::evaluate_filter(const Expression& node, const ScopePtr& scope, const Value* block) {
  const Level level(*this);
  Value input;
  if (node.parts[0] == nullptr) {
    input = *block;
  } else if (block != nullptr) {
    input = evaluate_filter(*node.parts[0], scope, block);
  } else {
    input = evaluate(*node.parts[0], scope);
  }
  const Arguments arguments = evaluate_arguments(node, scope);
  at_ = node.at;
  spend_on(input);
  Value result = apply_filter(node.name, input, arguments);
  spend_on(result);
  return result;
}

Arguments Evaluator::evaluate_arguments(const Expression& node, const ScopePtr& scope) {
  Arguments arguments;
  for (const ExpressionPtr& argument : node.positional) arguments.positional.push_back(evaluate(*argument, scope));
  if (node.unpacked != nullptr) {
    const Value more = evaluate(*node.unpacked, scope);
    at_ = node.unpacked->at;
    for (const Value& argument : iterate(more)) arguments.positional.push_back(argument);
  }
  for (const auto& [name, argument] : node.named) arguments.named.emplace_back(name, evaluate(*argument, scope));
  if (node.unpacked_named == nullptr) return arguments;
  const Value more = evaluate(*node.unpacked_named, scope);
  at_ = node.unpacked_named->at;
  if (!more.is_dict()) throw Fault("only a dict can be unpacked with `**`; found " + std::string(more.type_name()));
  for (const auto& [key, argument] : more.as_dict().entries) {
    const std::string& name = text_argument("unpacking with `**`", key);
    if (std::ranges::find(arguments.named, name, &std::pair<std::string, Value>::first) != arguments.named.end())
      throw Fault("the argument `" + name + "` is given twice");
    arguments.named.emplace_back(name, argument);
  }
  return arguments;
}

Value Evaluator::evaluate_call(const Expression& node, const ScopePtr& scope, const Value* caller) {
  const Expression& target = *node.parts[0];
  const Value callee = evaluate(target, scope);
  Arguments arguments = evaluate_arguments(node, scope);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  at_ = target.at;
  return call(callee, std::move(arguments), target.at);
}

Value Evaluator::call(const Value& callee, Arguments arguments, std::size_t at) {
  require_defined(callee);
  if (!callee.is(Kind::kCallable))
    throw Fault("a value of type " + std::string(callee.type_name()) + " cannot be called");
  const Callable& callable = callee.as_callable();
  switch (callable.kind) {
    case Callable::Kind::kFunction:
      return find_function(callable.name)("the function `" + callable.name + "`", state_, arguments);
    case Callable::Kind::kMethod: {
      spend_on(callable.receiver);
      Value result = call_method(callable.receiver, callable.name, arguments);
      spend_on(result);
      return result;
    }
    case Callable::Kind::kMacro: {
      Value result = call_macro(*callable.macro, kept_[callable.scope], std::move(arguments));
      at_ = at;
      return result;
    }
  }
  throw Fault("this value cannot be called");
}

Value Evaluator::call_macro(const MacroNode& macro, const ScopePtr& scope, Arguments arguments) {
  const Level level(*this);
  const std::string what = macro.name.empty() ? "`caller`" : "the macro `" + macro.name + "`";
  const auto inner = std::make_shared<Scope>(scope);
  if (arguments.positional.size() > macro.parameters.size())
    throw Fault(what + " takes at most " + std::to_string(macro.parameters.size()) + " arguments; found " +
                std::to_string(arguments.positional.size()));
  // Defaults may refer to the parameters before them.
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    const auto named = std::ranges::find(arguments.named, parameter.name, &std::pair<std::string, Value>::first);
    if (i < arguments.positional.size()) {
      inner->set(parameter.name, std::move(arguments.positional[i]));
    } else if (named != arguments.named.end()) {
      inner->set(parameter.name, std::move(named->second));
      arguments.named.erase(named);
    } else if (parameter.otherwise != nullptr) {
      inner->set(parameter.name, evaluate(*parameter.otherwise, inner));
    } else {
      inner->set(parameter.name, Value::undefined("parameter '" + parameter.name + "' was not provided"));
    }
  }
  if (macro.uses_caller) {
    const auto given = std::ranges::find(arguments.named, "caller", &std::pair<std::string, Value>::first);
    inner->set("caller", given != arguments.named.end() ? given->second : Value::undefined("No caller defined"));
    if (given != arguments.named.end()) arguments.named.erase(given);
  }
  if (!arguments.named.empty())
    throw Fault(what + " does not have an argument `" + arguments.named.front().first + "`");
  std::string out;
  execute(macro.body, inner, out);
  spend(out.size());
  return Value::text(std::move(out));
}

}  // namespace titan::data::jinja
