// Values that a template can call.
#pragma once

#include <memory>
#include <string>

#include "data/chat/jinja/values/template_value.h"

namespace titan::data::jinja {

struct MacroNode;  // syntax/ast.h

struct Callable {
  enum class Kind { kFunction, kMethod, kMacro };
  Kind kind;
  std::string name;                  // of the function or method; empty for the body of a call block
  Value receiver;                    // of a method
  const MacroNode* macro = nullptr;  // outlives the value
  std::size_t scope = 0;             // of a macro: number of the scope in which it was defined, in the evaluator
};

}  // namespace titan::data::jinja
