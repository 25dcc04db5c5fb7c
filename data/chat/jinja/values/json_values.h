// Values from JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "data/chat/jinja/values/template_value.h"

namespace titan::data::jinja {

// Throws Fault for text that is not UTF-8, integers beyond 64 bits with sign, and what is nested too deeply.
Value from_json(const nlohmann::ordered_json& json);

}  // namespace titan::data::jinja
