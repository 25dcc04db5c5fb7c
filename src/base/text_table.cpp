#include "base/text_table.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

namespace titan {

std::string text_table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right) {
  std::vector<std::size_t> widths(right.size(), 0);
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line = " ";
    for (std::size_t c = 0; c < row.size(); ++c)
      line += right[c] ? fmt::format(" {:>{}}", row[c], widths[c] + (c > 0))
                       : fmt::format(" {:<{}}", row[c], widths[c] + 1);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace titan
