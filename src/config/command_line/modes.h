// Lists the flags that are not keys: they choose what the program does. Parsing, --help, docs/config.md and completion
// walk this table.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace titan::config {

struct Mode {
  std::string_view name;        // with '_'; '-' and '_' are alike when typed
  std::string_view value;       // describes the value, "a TOML file"; empty if it takes none
  bool value_may_be_left_out;   // the value is optional
  std::string_view choices;     // "bash,zsh,fish"; empty: any
  std::string_view doc;         // a line of --help has the part up to the first ';'
  bool is_seldom_used = false;  // not in the short --help
};

std::span<const Mode> modes();

// Returns the name as it is typed: "dry-run".
std::string typed_name(const Mode& mode);

}  // namespace titan::config
