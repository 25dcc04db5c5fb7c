// Methods of str, dict and list.
#pragma once

#include <string_view>

#include "data/chat/jinja/values/template_value.h"

namespace titan::data::jinja {

// True if call_method() has the method for values of this type.
bool has_method(const Value& receiver, std::string_view name);

}  // namespace titan::data::jinja
