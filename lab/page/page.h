// Pages that need no other file and no network: a template, which has its style, its script and page.css and page.js
// in it, and data as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace titan::page {

// The template with `json` in the place of "@DATA@". What would end the script element, or change how it is read, is
// escaped.
std::string with_data(std::string_view page_template, std::string_view json);

// What a page needs of a number, as it holds many of them: `digits` digits. null for NaN and infinities.
nlohmann::ordered_json short_number(double value, int digits);

}  // namespace titan::page
