// Checks the names in a parsed template.
#pragma once

#include "data/chat/jinja/syntax/ast.h"
#include "data/chat/jinja/syntax/template_source.h"

namespace titan::data::jinja {

// Facts about a template that only a walk through all of it shows.
struct TemplateFacts {
  bool has_generation = false;  // contains {% generation %}
};

// Throws DataError for filters, tests, methods and functions that are not supported. Sets MacroNode::uses_caller.
TemplateFacts check_names(const Source& source, Body& body);

}  // namespace titan::data::jinja
