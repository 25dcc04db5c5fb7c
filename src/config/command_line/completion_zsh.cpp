#include "base/text.h"
#include "config/command_line/completion.h"

namespace titan::config {
namespace {

// Within '...' and within the brackets and between the colons of an _arguments specification.
std::string zsh_escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_flag(const CompletedFlag& item) {
  const std::string doc = item.doc.empty() ? "" : "[" + zsh_escaped(item.doc) + "]";
  if (item.is_bool) return "'" + item.flag + doc + "' '" + negated_flag(item.flag) + doc + "'";
  if (!item.takes_value) return "'" + item.flag + doc + "'";
  const std::string action = item.is_path ? "_files" : item.values.empty() ? " " : "(" + join(item.values, " ") + ")";
  const std::string kind = item.kind.empty() ? "value" : zsh_escaped(item.kind);
  if (item.value_is_inline) return "'" + item.flag + "=-" + doc + "::" + kind + ":" + action + "'";
  return "'" + item.flag + "=" + doc + ":" + kind + ":" + action + "'";
}

std::string zsh_arguments(const std::vector<CompletedFlag>& flags, const std::string& first,
                          const std::string& indent) {
  std::string out = indent + "_arguments " + first;
  for (const CompletedFlag& item : flags) out += " \\\n" + indent + "  " + zsh_flag(item);
  return out + "\n";
}

std::string zsh_command(const std::string& command) {
  return "    '" + command + "')\n" + zsh_arguments(flags_of_command(command), "'*:file:_files'", "      ") +
         "      return ;;\n";
}

}  // namespace

// A command's words are shifted away, so that _arguments sees its flags alone.
std::string zsh_completion() {
  std::string out =
      "#compdef titan-train\n# Completion of titan-train: eval \"$(titan-train --completion zsh)\"\n"
      "_titan_train() {\n  local command=${words[2]}\n  if (( CURRENT > 2 )) && [[ $command == (" +
      join(command_names(), "|") + ") ]]; then\n    shift words\n    (( CURRENT-- ))\n";
  for (const Subcommand& item : subcommands()) {
    if (item.words.empty()) continue;
    out += "    if [[ $command == " + std::string(item.name) + " ]]; then\n      if (( CURRENT == 2 )); then\n" +
           "        compadd -- " + join(split(item.words, ','), " ") +
           " --help\n        return\n      fi\n      command+=\" ${words[2]}\"\n      shift words\n      (( CURRENT-- "
           "))\n" +
           "    fi\n";
  }
  out += "    case $command in\n";
  for (const std::string& command : commands_with_flags()) out += zsh_command(command);
  return out + "    esac\n  fi\n" +
         zsh_arguments(run_flags(), "'1:command:(" + join(command_names(), " ") + " --config)'", "  ") +
         "}\ncompdef _titan_train titan-train\n";
}

}  // namespace titan::config
