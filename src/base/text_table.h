// Rows of text in columns, for what commands print.
#pragma once

#include <string>
#include <vector>

namespace titan {

// Columns of equal width, in bytes; those of `right` are flush right. Two spaces in front of each line. A row may have
// fewer cells than there are columns.
std::string text_table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right);

}  // namespace titan
