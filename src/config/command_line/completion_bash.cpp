// bash divides words at '=': "--a=b" arrives as three. Names of files are left as they are by `compopt -o filenames`,
// which adds the '/' of folders and quotes blanks; outside of a completion, as in tests, it has nothing to set.
#include <algorithm>

#include "base/text.h"
#include "config/command_line/completion.h"

namespace titan::config {
namespace {

constexpr const char* kBegin = R"sh(# Completion of titan-train: eval "$(titan-train --completion bash)"
_titan_train_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$current"); }
_titan_train_files() {
  compopt -o filenames 2>/dev/null
  local typed=${current#[\"\']}
  mapfile -t COMPREPLY < <(compgen -f -- "${typed//\\/}")
}
_titan_train_nothing() { compopt +o default 2>/dev/null; }
_titan_train() {
  local current=${COMP_WORDS[COMP_CWORD]} flag= inline= command=${COMP_WORDS[1]}
  COMPREPLY=()
  if [[ $current == "=" ]]; then
    flag=${COMP_WORDS[COMP_CWORD-1]} current= inline=1
  elif ((COMP_CWORD > 1)) && [[ ${COMP_WORDS[COMP_CWORD-1]} == "=" ]]; then
    flag=${COMP_WORDS[COMP_CWORD-2]} inline=1
  elif ((COMP_CWORD > 1)); then
    flag=${COMP_WORDS[COMP_CWORD-1]}
  fi
)sh";

// What `case` compares: '-' and '_' are alike.
std::string pattern(const std::string& flag) {
  std::string out = flag;
  std::ranges::replace(out, '-', '_');
  return out;
}

// The lines of `case $inline,${flag//-/_} in`: what follows a flag that takes a value.
std::string value_cases(const std::vector<CompletedFlag>& flags, const std::string& indent) {
  std::string out;
  std::vector<std::string> paths, others;
  for (const CompletedFlag& item : flags) {
    if (!item.takes_value) continue;
    const std::string when = (item.is_bool || item.value_is_inline ? "1," : "*,") + pattern(item.flag);
    if (!item.values.empty()) {
      out += indent + when + ") _titan_train_words '" + join(item.values, " ") + "'; return ;;\n";
    } else {
      (item.is_path ? paths : others).push_back(when);
    }
  }
  if (!paths.empty()) out += indent + join(paths, "|") + ") _titan_train_files; return ;;\n";
  if (!others.empty()) out += indent + join(others, "|") + ") _titan_train_nothing; return ;;\n";
  return out;
}

std::string names_of(const std::vector<CompletedFlag>& flags) {
  std::vector<std::string> names;
  for (const CompletedFlag& item : flags) {
    names.push_back(item.flag);
    if (item.is_bool) names.push_back(negated_flag(item.flag));
  }
  return join(names, " ");
}

// Flags after a '-', else files.
std::string command_case(const std::string& command) {
  const auto flags = flags_of_command(command);
  return "    '" + command + "')\n      case $inline,${flag//-/_} in\n" + value_cases(flags, "        ") +
         "      esac\n      if [[ $current == -* ]]; then _titan_train_words '" + names_of(flags) +
         "'; else _titan_train_files; fi\n      return ;;\n";
}

std::string command_cases() {
  std::string out = "  if ((COMP_CWORD == 1)) && [[ $current != -* ]]; then\n    _titan_train_words '" +
                    join(command_names(), " ") + " --config'\n    return\n  fi\n";
  for (const Subcommand& command : subcommands()) {
    if (command.words.empty()) continue;
    out += "  if [[ $command == " + std::string(command.name) + " ]]; then\n    if ((COMP_CWORD == 2)); then\n" +
           "      _titan_train_words '" + join(split(command.words, ','), " ") +
           " --help'\n      return\n    fi\n    command+=\" ${COMP_WORDS[2]}\"\n  fi\n";
  }
  out += "  case $command in\n";
  for (const std::string& command : commands_with_flags()) out += command_case(command);
  return out + "  esac\n";
}

}  // namespace

std::string bash_completion() {
  const auto flags = run_flags();
  return kBegin + command_cases() + "  case $inline,${flag//-/_} in\n" + value_cases(flags, "    ") +
         "    *,_c) _titan_train_files; return ;;\n  esac\n  _titan_train_words '" + names_of(flags) +
         "'\n}\ncomplete -o default -F _titan_train titan-train\n";
}

}  // namespace titan::config
