#include "data/chat/jinja/check_names.h"

#include <algorithm>
#include <array>
#include <set>

#include "data/chat/jinja/attributes.h"
#include "data/chat/jinja/builtins.h"

namespace titan::data::jinja {
namespace {

// Names that have a meaning in Jinja, or inside its macros, which this program does not give them.
constexpr std::array<std::string_view, 7> kUnsupportedNames = {"varargs", "kwargs", "lipsum", "cycler",
                                                               "joiner",  "self",   "super"};

class Checker {
 public:
  explicit Checker(const Source& source) : source_(source) {}

  TemplateFacts run(Body& body) {
    check(body);
    for (const auto& [name, at] : used_)
      if (!assigned_.contains(name))
        throw source_.error(at, "`" + std::string(name) + "` is not supported in chat templates");
    return facts_;
  }

 private:
  [[noreturn]] void fail(const Expression& node, const std::string& message) const {
    throw source_.error(node.at, message);
  }

  void check_filter(const Expression& node, const std::string& name) const {
    if (find_filter(name) == nullptr)
      fail(node, "the filter `" + name + "` is not supported; expected one of " + filter_names());
  }

  void check_test(const Expression& node, const std::string& name) const {
    if (find_test(name) == nullptr)
      fail(node, "the test `" + name + "` is not supported; expected one of " + test_names());
  }

  // Checks the names of filters and tests that are arguments: map("upper"), selectattr("role", "equalto", "user").
  void check_named_in_arguments(const Expression& node) const {
    const bool by_attribute = node.name == "selectattr" || node.name == "rejectattr";
    const bool selects = by_attribute || node.name == "select" || node.name == "reject";
    const std::size_t at = by_attribute ? 1 : 0;
    if ((!selects && node.name != "map") || node.positional.size() <= at) return;
    const Expression& argument = *node.positional[at];
    if (argument.kind != ExpressionKind::kLiteral || !argument.literal.is_text()) return;
    if (selects) {
      check_test(argument, argument.literal.as_text());
    } else {
      check_filter(argument, argument.literal.as_text());
    }
  }

  void check(const ExpressionPtr& pointer) {
    if (pointer == nullptr) return;
    const Expression& node = *pointer;
    for (const auto& part : node.parts) check(part);
    for (const auto& argument : node.positional) check(argument);
    for (const auto& [name, argument] : node.named) check(argument);
    check(node.unpacked);
    check(node.unpacked_named);
    switch (node.kind) {
      case ExpressionKind::kFilter:
        check_filter(node, node.name);
        check_named_in_arguments(node);
        break;
      case ExpressionKind::kTest:
        check_test(node, node.name);
        break;
      case ExpressionKind::kAttribute:
        if (node.name.starts_with("__"))
          fail(node, "the attribute `" + node.name + "` is internal to Python; templates must not use it");
        break;
      case ExpressionKind::kCall:
        check_call(*node.parts[0]);
        break;
      case ExpressionKind::kName:
        uses_caller_ = uses_caller_ || node.name == "caller";
        if (std::ranges::find(kUnsupportedNames, node.name) != kUnsupportedNames.end())
          used_.emplace_back(node.name, node.at);
        break;
      default:
        break;
    }
  }

  void check_call(const Expression& callee) const {
    if (callee.kind == ExpressionKind::kAttribute && is_unsupported_method(callee.name))
      fail(callee, "the method `" + callee.name + "` is not supported");
    if (callee.kind == ExpressionKind::kName && callee.name == "loop")
      fail(callee, "calling `loop` is not supported; write a macro that calls itself");
    const bool of_loop = callee.kind == ExpressionKind::kAttribute && callee.parts[0]->kind == ExpressionKind::kName &&
                         callee.parts[0]->name == "loop";
    if (of_loop && (callee.name == "cycle" || callee.name == "changed"))
      fail(callee, "`loop." + callee.name + "` is not supported; use `loop.index0` or `loop.previtem`");
  }

  void note(const Target& target) {
    if (target.attribute.empty() && !target.name.empty()) assigned_.insert(target.name);
    for (const Target& part : target.parts) note(part);
  }

  void check(MacroNode& macro) {
    if (!macro.name.empty()) assigned_.insert(macro.name);
    for (const Parameter& parameter : macro.parameters) {
      assigned_.insert(parameter.name);
      check(parameter.otherwise);
    }
    const bool outside = std::exchange(uses_caller_, false);
    check(macro.body);
    macro.uses_caller = uses_caller_;
    uses_caller_ = uses_caller_ || outside;
  }

  void check(Body& body) {
    for (const auto& statement : body) {
      note(statement->target);
      check(statement->value);
      check(statement->condition);
      for (auto& [condition, branch] : statement->branches) {
        check(condition);
        check(branch);
      }
      for (const auto& [target, value] : statement->assignments) {
        note(target);
        check(value);
      }
      check(statement->body);
      check(statement->otherwise);
      if (statement->kind == StatementKind::kMacro || statement->kind == StatementKind::kCallBlock)
        check(statement->macro);
      facts_.has_generation = facts_.has_generation || statement->kind == StatementKind::kGeneration;
    }
  }

  const Source& source_;
  TemplateFacts facts_;
  bool uses_caller_ = false;                                    // in the macro that is being checked
  std::vector<std::pair<std::string_view, std::size_t>> used_;  // names of kUnsupportedNames
  std::set<std::string_view> assigned_;
};

}  // namespace

TemplateFacts check_names(const Source& source, Body& body) { return Checker(source).run(body); }

}  // namespace titan::data::jinja
