// Parses the text of a template.
#pragma once

#include "data/chat/jinja/syntax/ast.h"
#include "data/chat/jinja/syntax/template_source.h"

namespace titan::data::jinja {

// Throws DataError for a mistake in the template and for statements that are not supported. Does not check the names of
// filters, tests and functions: see check_names().
Body parse(const Source& source);

}  // namespace titan::data::jinja
