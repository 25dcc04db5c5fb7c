// Shell completion, from the tables of keys, flags and commands.
#include <algorithm>

#include "base/text.h"
#include "config/fields.h"
#include "config/modes.h"
#include "config/print.h"

namespace titan::config {
namespace {

// What the shell offers after a flag.
struct Completed {
  std::string flag;  // "--training.steps"
  std::string doc;
  std::string kind;  // "an integer"
  StringList values;
  bool is_bool = false;
  bool is_path = false;
  bool takes_value = true;
};

Completed completed(const Field& field) {
  Completed out{"--" + field.key, field.doc, describe_kind(field), field.rule.choices, false, false, true};
  out.is_bool = field.kind == ValueKind::kBool;
  if (out.is_bool) out.values = {"true", "false"};
  if (field.optional && !out.values.empty()) out.values.push_back("None");
  const std::string name = last_part_of(field);
  out.is_path = name.ends_with("_path") || name.ends_with("_folder") || name == "folder" || name == "config_file";
  return out;
}

Completed completed(const Mode& mode) {
  Completed out{"--" + typed_name(mode), std::string(mode.doc), std::string(mode.value), {}, false, false, true};
  if (!mode.choices.empty()) out.values = split(mode.choices, ',');
  out.is_path = mode.name == "config";
  out.takes_value = !mode.value.empty();
  if (mode.name == "help")
    for (const TableDoc& table : table_docs()) out.values.push_back(table.name);
  return out;
}

std::vector<Completed> all_flags() {
  std::vector<Completed> out;
  for (const Mode& mode : modes()) out.push_back(completed(mode));
  for (const Field& field : fields()) out.push_back(completed(field));
  return out;
}

// "checkpoint.enable" -> "--checkpoint.no-enable"
std::string negation(const std::string& flag) {
  const auto begin = flag.rfind('.') + 1;
  return flag.substr(0, begin) + "no-" + flag.substr(begin);
}

// What `case` compares: '-' and '_' are alike.
std::string pattern(const std::string& flag) {
  std::string out = flag;
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

// bash divides words at '=': "--a=b" arrives as three.
constexpr const char* kBashBegin = R"sh(# Completion of titan-train: eval "$(titan-train --completion bash)"
_titan_train() {
  local current=${COMP_WORDS[COMP_CWORD]} flag= inline=
  COMPREPLY=()
  if [[ $current == "=" ]]; then
    flag=${COMP_WORDS[COMP_CWORD-1]} current= inline=1
  elif ((COMP_CWORD > 1)) && [[ ${COMP_WORDS[COMP_CWORD-1]} == "=" ]]; then
    flag=${COMP_WORDS[COMP_CWORD-2]} inline=1
  elif ((COMP_CWORD > 1)); then
    flag=${COMP_WORDS[COMP_CWORD-1]}
  fi
)sh";

std::string bash_commands() {
  std::string out = "  case $COMP_CWORD,${COMP_WORDS[1]} in\n";
  out += "    1,-*) ;;\n    1,*) COMPREPLY=($(compgen -W '" + join(command_names(), " ") +
         "' -- \"$current\")); return ;;\n";
  for (const Subcommand& command : subcommands()) {
    const std::string words = command.words.empty() ? "" : join(split(command.words, ','), " ") + " ";
    out += "    2," + std::string(command.name) + ") COMPREPLY=($(compgen -W '" + words +
           "--help' -- \"$current\")); return ;;\n";
    out += "    *," + std::string(command.name) + ") COMPREPLY=($(compgen -f -- \"$current\")); return ;;\n";
  }
  return out + "  esac\n";
}

std::string bash_values(const std::vector<Completed>& flags) {
  std::string out = "  case $inline,${flag//-/_} in\n";
  StringList paths, others;
  for (const Completed& item : flags) {
    const std::string inline_or_not = item.is_bool ? "1," : "*,";
    if (!item.values.empty() && item.flag != "--print-config") {
      out += "    " + inline_or_not + pattern(item.flag) + ") COMPREPLY=($(compgen -W '" + join(item.values, " ") +
             "' -- \"$current\")); return ;;\n";
    } else if (item.flag == "--print-config") {
      out += "    1,__print_config) COMPREPLY=($(compgen -W origins -- \"$current\")); return ;;\n";
    } else if (item.takes_value) {
      (item.is_path ? paths : others).push_back("*," + pattern(item.flag));
    }
  }
  out += "    " + join(paths, "|") + ") COMPREPLY=($(compgen -f -- \"$current\")); return ;;\n";
  out += "    " + join(others, "|") + ") return ;;\n";
  return out + "  esac\n";
}

std::string bash_script() {
  const auto flags = all_flags();
  StringList names;
  for (const Completed& item : flags) {
    names.push_back(item.flag);
    if (item.is_bool) names.push_back(negation(item.flag));
  }
  return kBashBegin + bash_commands() + bash_values(flags) + "  COMPREPLY=($(compgen -W '" + join(names, " ") +
         "' -- \"$current\"))\n}\ncomplete -F _titan_train titan-train\n";
}

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

std::string zsh_flag(const Completed& item) {
  const std::string doc = "[" + zsh_escaped(item.doc) + "]";
  if (item.is_bool) return "    '" + item.flag + doc + "' '" + negation(item.flag) + doc + "'";
  if (!item.takes_value) return "    '" + item.flag + doc + "'";
  const std::string action = item.is_path ? "_files" : item.values.empty() ? " " : "(" + join(item.values, " ") + ")";
  if (item.flag == "--print-config") return "    '" + item.flag + "=-" + doc + "::origins:" + action + "'";
  return "    '" + item.flag + "=" + doc + ":" + zsh_escaped(item.kind) + ":" + action + "'";
}

std::string zsh_script() {
  std::string out =
      "#compdef titan-train\n# Completion of titan-train: eval \"$(titan-train --completion zsh)\"\n"
      "_titan_train() {\n  _arguments \\\n    '1:command:(" +
      join(command_names(), " ") + ")'";
  for (const Completed& item : all_flags()) out += " \\\n" + zsh_flag(item);
  return out + "\n}\ncompdef _titan_train titan-train\n";
}

}  // namespace

std::string completion_script(const std::string& shell) { return shell == "zsh" ? zsh_script() : bash_script(); }

}  // namespace titan::config
