// What shells are told about flags, for the scripts of --completion; each shell's script is in a file of its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/command_line/modes.h"

namespace titan::config {

// A flag, and what the shell offers after it.
struct CompletedFlag {
  std::string flag;  // "--training.steps"
  std::string doc;
  std::string kind;  // "an integer"
  std::vector<std::string> values;
  bool is_bool = false;  // a key's: has a negation, and its value stands after '=' only
  bool is_path = false;
  bool takes_value = true;
  bool value_is_inline = false;  // after '=' only, and may be left out
};

// Of a run: modes and keys.
std::vector<CompletedFlag> run_flags();

// Of a command, "tokenizer train"; --help among them.
std::vector<CompletedFlag> flags_of_command(std::string_view command);

// "tokenizer train", "tokenizer encode", ..., "sweep": all that have flags of their own.
std::vector<std::string> commands_with_flags();

// "--checkpoint.enable" -> "--checkpoint.no-enable"
std::string negated_flag(const std::string& flag);

std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

}  // namespace titan::config
