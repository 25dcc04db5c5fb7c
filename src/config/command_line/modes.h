// What the command line knows besides keys: the flags that choose what to do, and the commands. Parsing, --help,
// docs/config.md and shell completion walk these tables.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

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

// `titan-train NAME ...`; what follows is up to the command.
struct Subcommand {
  std::string_view name;
  std::string_view words;  // its own first words, for completion: "train,encode,decode"
  std::string_view doc;
};

std::span<const Subcommand> subcommands();
std::vector<std::string> command_names();

// A flag of a command, for completion. A test compares with what the command's --help says.
struct CommandFlag {
  std::string_view command;  // "sweep", "tokenizer train"
  std::string_view flag;     // "--max-parallel"
  std::string_view value;    // "": none; "path", "any", or choices, "hf,dcp,torch"
};

std::span<const CommandFlag> command_flags();

// What a key or a flag takes that anything may be given to: names of models, data and devices. Completion offers them;
// they are the business of layers above this one, and a test compares. Nothing for other names.
std::vector<std::string> usual_values(std::string_view name);

}  // namespace titan::config
