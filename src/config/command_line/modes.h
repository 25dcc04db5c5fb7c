// Lists the flags that are not keys: they choose what the program does. Parsing, --help, docs/config.md and completion
// walk this table.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace titan::config {

struct Mode {
  std::string_view name;        // with '_'; '-' and '_' are alike when typed
  std::string_view value;       // what follows, "a TOML file"; empty: nothing
  bool value_may_be_left_out;   // only then
  std::string_view choices;     // "bash,zsh,fish"; empty: any
  std::string_view doc;         // up to its first ';' for a line of --help
  bool is_seldom_used = false;  // not in the short --help
};

std::span<const Mode> modes();

// "dry-run", as it is typed.
std::string typed_name(const Mode& mode);

}  // namespace titan::config
