// String literals of expressions.
#pragma once

#include "data/chat/jinja/syntax/template_source.h"
#include "data/chat/jinja/values/template_value.h"

namespace titan::data::jinja {

// Returns the string between the quotes [from, to) of the source, with Python's escapes. Throws DataError for escapes
// that are not supported or broken.
Value read_string_literal(const Source& source, std::size_t from, std::size_t to);

}  // namespace titan::data::jinja
