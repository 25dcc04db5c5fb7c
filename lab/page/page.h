// Builds HTML pages that need no other file and no network: a template, which contains its style,
// its script, page.css, page.js and chart.js, plus data as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace titan::page {

// Returns the template with `json` in place of "@DATA@". Escapes what would end the script element
// or change how it is read.
std::string with_data(std::string_view page_template, std::string_view json);

// Rounds a number to `digits` digits, because a page holds many. null for NaN and infinities.
nlohmann::ordered_json short_number(double value, int digits);

}  // namespace titan::page
