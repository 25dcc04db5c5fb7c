// The syntax tree of a template. Immutable after parsing, so that several threads may render the same template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/chat/jinja/values/template_value.h"
#include "data/chat/jinja/values/value_operators.h"

namespace titan::data::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class ExpressionKind {
  kLiteral,      // literal
  kName,         // name
  kList,         // parts
  kTuple,        // parts
  kDict,         // parts: key, value, key, value, ...
  kAttribute,    // parts[0].name
  kSubscript,    // parts[0][parts[1]]
  kSlice,        // parts[0][parts[1]:parts[2]:parts[3]]; null for a bound that was left out
  kCall,         // parts[0](arguments)
  kFilter,       // parts[0] | name(arguments); parts[0] is null at the start of a filter block
  kTest,         // parts[0] is name(arguments)
  kNot,          // not parts[0]
  kNegative,     // -parts[0]
  kPositive,     // +parts[0]
  kAnd,          // parts[0] and parts[1]
  kOr,           // parts[0] or parts[1]
  kArithmetic,   // parts[0] operation parts[1]
  kConcatenate,  // parts[0] ~ parts[1] ~ ...
  kCompare,      // parts[0] comparisons[0] parts[1] comparisons[1] parts[2] ...
  kChoice        // parts[1] if parts[0] else parts[2]; parts[2] is null without an else
};

enum class Comparison { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

struct Expression {
  ExpressionKind kind;
  std::size_t at;         // offset in the source
  std::size_t depth = 1;  // of the tree below, for the limit of the parser
  std::string name;
  Value literal;
  std::vector<ExpressionPtr> parts;
  // Arguments: positional, *unpacked, name=named, **unpacked_named.
  std::vector<ExpressionPtr> positional;
  ExpressionPtr unpacked;  // null if there is none
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr unpacked_named;  // null if there is none
  std::vector<Comparison> comparisons;
  Arithmetic operation = Arithmetic::kAdd;
};

// A name, or several to which the items of a value are assigned.
struct Target {
  std::size_t at = 0;
  std::string name;           // empty for several
  std::string attribute;      // of the namespace `name`; empty if there is none
  std::vector<Target> parts;  // several
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

struct Parameter {
  std::string name;
  ExpressionPtr otherwise;  // default value; null if there is none
};

// A macro, or the body of a call block (which has an empty name).
struct MacroNode {
  std::string name;
  std::vector<Parameter> parameters;
  bool uses_caller = false;  // set by check_names()
  Body body;
};

enum class StatementKind {
  kData,         // text
  kPrint,        // value
  kIf,           // branches, otherwise
  kFor,          // for target in value if condition: body, otherwise
  kSet,          // target = value
  kSetBlock,     // target = body, through the filter `value` if there is one
  kMacro,        // macro
  kCallBlock,    // value is the call; macro is the body
  kFilterBlock,  // body through the filter `value`
  kWith,         // assignments, body
  kGeneration,   // body
  kBreak,
  kContinue
};

struct Statement {
  StatementKind kind;
  std::size_t at;
  std::string text;
  Target target;
  ExpressionPtr value;
  ExpressionPtr condition;
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  Body body;
  Body otherwise;
  MacroNode macro;
};

}  // namespace titan::data::jinja
