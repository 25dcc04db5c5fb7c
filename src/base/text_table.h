// Formats rows of text in columns, for the output of commands.
#pragma once

#include <string>
#include <vector>

namespace titan {

// Aligns `rows` in columns, whose widths count bytes; columns with `right` set are flush right.
// Each line starts with two spaces. A row may have fewer cells than there are columns.
std::string text_table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right);

}  // namespace titan
