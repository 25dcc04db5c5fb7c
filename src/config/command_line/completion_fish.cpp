#include "base/text.h"
#include "config/command_line/completion.h"

namespace titan::config {
namespace {

// Within '...'.
std::string fish_escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string fish_flag(const CompletedFlag& item, const std::string& condition) {
  const std::string begin = "complete -c titan-train -n '" + condition + "' -l '";
  const std::string doc = item.doc.empty() ? "" : " -d '" + fish_escaped(item.doc) + "'";
  if (item.is_bool)
    return begin + item.flag.substr(2) + "'" + doc + "\n" + begin + negated_flag(item.flag).substr(2) + "'" + doc +
           "\n";
  std::string value;
  if (item.takes_value && !item.value_is_inline)
    value = item.is_path ? " -r -F" : item.values.empty() ? " -x" : " -x -a '" + join(item.values, " ") + "'";
  return begin + item.flag.substr(2) + "'" + value + doc + "\n";
}

std::string fish_command(const Subcommand& command) {
  const std::string name(command.name);
  std::string out = "complete -c titan-train -n __fish_use_subcommand -f -a " + name + " -d '" +
                    fish_escaped(std::string(command.doc)) + "'\n";
  if (!command.words.empty()) {
    const std::string words = join(split(command.words, ','), " ");
    out += "complete -c titan-train -n '__fish_seen_subcommand_from " + name +
           "; and not __fish_seen_subcommand_from " + words + "' -f -a '" + words + "'\n";
  }
  return out;
}

}  // namespace

std::string fish_completion() {
  std::string out = "# Completion of titan-train: titan-train --completion fish | source\n";
  for (const Subcommand& command : subcommands()) out += fish_command(command);
  for (const std::string& command : commands_with_flags()) {
    std::string condition;
    for (const std::string& word : split(command, ' '))
      condition += (condition.empty() ? "" : "; and ") + ("__fish_seen_subcommand_from " + word);
    for (const CompletedFlag& item : flags_of_command(command)) out += fish_flag(item, condition);
  }
  for (const CompletedFlag& item : run_flags()) out += fish_flag(item, "__fish_use_subcommand");
  return out;
}

}  // namespace titan::config
